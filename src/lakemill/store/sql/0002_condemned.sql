-- Snapshots that are about to be expired: from here on nobody can pin them or record a position at them.
CREATE TABLE lakemill.condemned (
  snapshot_id  bigint PRIMARY KEY,
  condemned_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.condemned IS 'Snapshots that expiry has chosen, from the choice until they are gone.';

CREATE TABLE lakemill.retained (
  table_id bigint PRIMARY KEY,                        -- the lake's
  gone     int8multirange NOT NULL DEFAULT '{}'       -- snapshots that were expired, at which it had not changed
);
COMMENT ON TABLE lakemill.retained IS 'Tables with a longer retention than the lake: what was expired beside it without loss to them. What else is missing may have changed them.';
