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
