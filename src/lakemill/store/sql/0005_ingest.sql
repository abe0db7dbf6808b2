-- Ingest: requests wait in the bus, in the order of their tokens, until a batch makes them visible.
CREATE TABLE lakemill.bus_head (
  one       boolean PRIMARY KEY DEFAULT true CHECK (one),
  lake_id   uuid NOT NULL DEFAULT gen_random_uuid(),  -- tokens of another lake, or of one that was made anew, are refused
  token     bigint NOT NULL DEFAULT 0,                -- the last one that was given out
  watermark bigint NOT NULL DEFAULT 0                 -- nothing at or below it can still become visible, in any table
) WITH (fillfactor = 10);
COMMENT ON TABLE lakemill.bus_head IS 'One row, locked by whoever accepts requests until its commit: so tokens have no gaps, and their order is the order of commits.';
INSERT INTO lakemill.bus_head DEFAULT VALUES;

CREATE TABLE lakemill.ingest_tables (
  table_id   bigint PRIMARY KEY,                      -- the lake's
  key        text[] NOT NULL DEFAULT '{}',            -- columns; with one, the table has at most one row a key
  policy     text NOT NULL DEFAULT 'reject' CHECK (policy IN ('reject', 'dead_letter', 'drop_field', 'evolve')),
  dedupe     interval NOT NULL DEFAULT '7 days',      -- how long idempotency keys are remembered
  retention  interval,                                -- how long its past is kept: snapshots, where the lake's is shorter, and settled dead letters
  cursor     bigint NOT NULL DEFAULT 0,               -- all its requests up to here are passed: visible, or dead letters
  attempts   int NOT NULL DEFAULT 0,                  -- how often the first request after the cursor was tried in vain
  not_before timestamptz NOT NULL DEFAULT '-infinity',
  reason     text NOT NULL DEFAULT '',                -- of the last time
  fence      bigint NOT NULL DEFAULT 0,               -- grows with every claim, and is a requirement of the publish
  holder     text,
  expires_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
COMMENT ON TABLE lakemill.ingest_tables IS 'Lake tables that take requests: what they accept, how far they are, and who works on them.';

CREATE TABLE lakemill.bus (
  token       bigint PRIMARY KEY,
  table_id    bigint NOT NULL REFERENCES lakemill.ingest_tables ON DELETE CASCADE,
  accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  columns     text NOT NULL,                          -- which columns the records were checked against
  records     int NOT NULL,
  bytes       int NOT NULL,
  body        text NOT NULL                           -- a record a line: {"o": "i" | "u" | "d", "p": {column: value, …}}
);
ALTER TABLE lakemill.bus ALTER body SET STORAGE EXTERNAL;  -- it lives for seconds: not worth compressing
CREATE INDEX bus_table ON lakemill.bus (table_id, token);
COMMENT ON TABLE lakemill.bus IS 'One row a request; never updated. Rows that are passed are removed in bulk.';

-- keys refer to no table: the check would cost more than the key; who drops a table removes them
CREATE TABLE lakemill.request_keys (
  table_id    bigint NOT NULL,
  key         text COLLATE "C" NOT NULL,
  token       bigint NOT NULL,
  digest      bytea NOT NULL,                         -- of what was asked: the same key with another body is refused
  answer      jsonb NOT NULL,                         -- the counts, which a retry is told again
  accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (table_id, key)
);
CREATE INDEX request_keys_age ON lakemill.request_keys USING brin (accepted_at);
COMMENT ON TABLE lakemill.request_keys IS 'Idempotency keys of whole requests.';

CREATE TABLE lakemill.record_keys (
  table_id    bigint NOT NULL,
  key         text COLLATE "C" NOT NULL,
  token       bigint NOT NULL,
  digest      bytea NOT NULL,
  accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (table_id, key)
);
CREATE INDEX record_keys_age ON lakemill.record_keys USING brin (accepted_at);
COMMENT ON TABLE lakemill.record_keys IS 'Idempotency keys of single records.';

CREATE TABLE lakemill.bus_commits (
  commit_id   uuid PRIMARY KEY,
  token       bigint,                                 -- the last one of the commit; NULL: it was settled that there is none
  accepted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.bus_commits IS 'Commits of requests, so that one whose answer was lost can be looked up; kept for an hour.';

CREATE TABLE lakemill.dead_letters (
  letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  table_id  bigint NOT NULL REFERENCES lakemill.ingest_tables ON DELETE CASCADE,
  token     bigint NOT NULL,                          -- of the request that brought it
  refused   boolean NOT NULL DEFAULT false,           -- when the request was accepted; else when it should have become a row
  position  int NOT NULL,                             -- of the record, from 0: in the request as it was sent, or in the bus
  body      text NOT NULL,                            -- as it came
  code      text NOT NULL,
  reason    text NOT NULL,
  place     text NOT NULL DEFAULT '',                 -- the field's path
  died_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  state     text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'replayed', 'dropped')),
  replayed  bigint,                                   -- the token of its replay
  UNIQUE (table_id, token, refused, position)
);
CREATE INDEX dead_letters_state ON lakemill.dead_letters (table_id, state, died_at);
COMMENT ON TABLE lakemill.dead_letters IS 'Records that could not become rows, each with its reason; they count as passed.';

CREATE TABLE lakemill.batches (
  table_id    bigint NOT NULL REFERENCES lakemill.ingest_tables ON DELETE CASCADE,
  token       bigint NOT NULL,                        -- the last one of the batch
  first       bigint NOT NULL,                        -- the first one
  snapshot_id bigint,                                 -- NULL: nothing of it became a row
  records     int NOT NULL,                           -- that became visible; of one key only the last
  letters     int NOT NULL,
  accepted_at timestamptz NOT NULL,                   -- the first request's time
  passed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (table_id, token)
);
COMMENT ON TABLE lakemill.batches IS 'The ledger: which snapshot made which tokens of a table visible; written by the publish itself.';
