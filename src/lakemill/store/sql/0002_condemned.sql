-- Snapshots that are about to be expired: from here on nobody can pin them or record a position at them.
CREATE TABLE lakemill.condemned (
  snapshot_id  bigint PRIMARY KEY,
  condemned_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.condemned IS 'Snapshots that expiry has chosen, from the choice until they are gone.';
