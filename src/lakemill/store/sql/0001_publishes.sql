-- What we remember of the lake itself: publishes, pins and recorded positions.
CREATE TABLE lakemill.publishes (
  publish_id   uuid PRIMARY KEY,
  snapshot_id  bigint,                       -- NULL: void, this publish will never happen
  published_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.publishes IS 'One row per publish id, written in the transaction that makes the snapshot.';
CREATE INDEX publishes_snapshot ON lakemill.publishes (snapshot_id);

CREATE TABLE lakemill.pins (
  pin_id      uuid PRIMARY KEY,
  snapshot_id bigint NOT NULL,
  holder      text NOT NULL,
  reason      text NOT NULL DEFAULT '',
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz                    -- NULL: until it is taken out
);
COMMENT ON TABLE lakemill.pins IS 'Snapshots that a reader needs: expiry and cleanup leave them alone.';
CREATE INDEX pins_snapshot ON lakemill.pins (snapshot_id);

CREATE TABLE lakemill.positions (
  holder      text NOT NULL,
  table_id    bigint NOT NULL,
  snapshot_id bigint NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (holder, table_id)
);
COMMENT ON TABLE lakemill.positions IS 'Up to which snapshot a consumer has read a table: deltas start there.';
CREATE INDEX positions_table ON lakemill.positions (table_id, snapshot_id);
