-- The service: due work, who does it, what keeps failing, and a word to those who wait.
ALTER TABLE lakemill.dynamic_tables
  ADD COLUMN round_at timestamptz,                    -- when the scheduler last took it up
  ADD COLUMN expected interval NOT NULL DEFAULT '0';  -- how long its next refresh will take, by the last ones

CREATE TABLE lakemill.work (
  work_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind       text NOT NULL CHECK (kind IN ('refresh', 'upkeep', 'ingest')),
  subject    text NOT NULL,                           -- what it is about: due work of one kind is there once
  dynamic_id bigint REFERENCES lakemill.dynamic_tables ON DELETE CASCADE,
  after      bigint[] NOT NULL DEFAULT '{}',          -- work that must be done before it
  b          bigint,
  t          timestamptz,
  manual     boolean NOT NULL DEFAULT false,
  priority   int NOT NULL DEFAULT 0,
  reason     text NOT NULL,
  added_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  worker     text,                                    -- NULL: nobody has it
  taken_at   timestamptz,
  expires_at timestamptz,
  traceparent text,                                   -- the trace that asked for it, as W3C writes it; NULL where nobody traces
  UNIQUE (kind, subject)
);
COMMENT ON TABLE lakemill.work IS 'What is due, and who does it. A row goes when it is done.';
CREATE INDEX work_dynamic ON lakemill.work (dynamic_id);

CREATE TABLE lakemill.workers (
  worker     text PRIMARY KEY,
  slots      int NOT NULL,
  kinds      text[] NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.workers IS 'The workers that said they live, and when they did last.';

CREATE TABLE lakemill.failures (
  dynamic_id bigint PRIMARY KEY REFERENCES lakemill.dynamic_tables ON DELETE CASCADE,
  count      int NOT NULL,
  failed_at  timestamptz NOT NULL,
  b          bigint NOT NULL,
  code       text NOT NULL,
  retry      text NOT NULL
);
COMMENT ON TABLE lakemill.failures IS 'Scheduled refreshes that failed in a row; gone with the next success, and when the table is resumed.';

CREATE TABLE lakemill.points (
  dynamic_id bigint PRIMARY KEY REFERENCES lakemill.dynamic_tables ON DELETE CASCADE,
  component  bigint NOT NULL,                         -- the least dynamic_id of those that the point is of
  version_id bigint NOT NULL REFERENCES lakemill.versions ON DELETE CASCADE,
  b          bigint NOT NULL,
  b_time     timestamptz NOT NULL,                    -- when b was committed
  t          timestamptz,                             -- NULL: nothing in it depends on the clock
  kept_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.points IS 'The newest consistent point of each component of the graph: the version of each table that is right for one b.';
CREATE INDEX points_component ON lakemill.points (component);
CREATE INDEX points_version ON lakemill.points (version_id);

CREATE VIEW lakemill.dynamic_table_points AS
SELECT d.schema_name, d.table_name, p.component AS point, p.b AS data_snapshot, p.b_time AS data_time, p.t AS clock_time,
       v.commit_snapshot, p.kept_at
FROM lakemill.points p JOIN lakemill.dynamic_tables d USING (dynamic_id) JOIN lakemill.versions v USING (version_id);
COMMENT ON VIEW lakemill.dynamic_table_points IS 'The newest consistent point of each component of the graph, kept readable: where to read each dynamic table. Base tables are read at data_snapshot.';
COMMENT ON COLUMN lakemill.dynamic_table_points.schema_name IS 'Schema of the dynamic table.';
COMMENT ON COLUMN lakemill.dynamic_table_points.table_name IS 'Name of the dynamic table.';
COMMENT ON COLUMN lakemill.dynamic_table_points.point IS 'The same number for all tables of one point.';
COMMENT ON COLUMN lakemill.dynamic_table_points.data_snapshot IS 'The snapshot that all tables of the point are right for.';
COMMENT ON COLUMN lakemill.dynamic_table_points.data_time IS 'When that snapshot was committed.';
COMMENT ON COLUMN lakemill.dynamic_table_points.clock_time IS 'What now() was in their queries; NULL where it does not matter.';
COMMENT ON COLUMN lakemill.dynamic_table_points.commit_snapshot IS 'The snapshot at which the table is to be read.';
COMMENT ON COLUMN lakemill.dynamic_table_points.kept_at IS 'When the point came here.';

CREATE TABLE lakemill.looked (
  policy    text PRIMARY KEY,                         -- the name of a schema or table; empty: the lake's
  looked_at timestamptz NOT NULL
);
COMMENT ON TABLE lakemill.looked IS 'When the service last looked for upkeep, by policy.';

CREATE TABLE lakemill.tended (
  job      text NOT NULL,
  table_id bigint NOT NULL,                           -- the lake's; 0 where the job is of the whole lake
  at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  outcome  text NOT NULL CHECK (outcome IN ('done', 'kept', 'failed')),
  reason   text NOT NULL DEFAULT '',
  mark     text NOT NULL DEFAULT '',                  -- what was there: while it is the same, what was kept is not tried again
  count    int NOT NULL DEFAULT 0,                    -- failures in a row
  PRIMARY KEY (job, table_id)
);
COMMENT ON TABLE lakemill.tended IS 'How the last upkeep of a table went that the service did by itself, and why it could do nothing.';

-- every commit wakes the scheduler: ours, and those of stock DuckDB
CREATE FUNCTION lakemill.tell_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('lakemill_commit', '');
  RETURN NULL;
END $$;
