-- Lake tables that take requests, and dead letters.

-- name: insert
-- a lake table takes requests from now on, unless it does already
INSERT INTO lakemill.ingest_tables (table_id, key, policy, dedupe, retention)
VALUES (%(table_id)s, %(key)s::text[], %(policy)s, %(dedupe)s, %(retention)s)
ON CONFLICT (table_id) DO NOTHING RETURNING table_id;

-- name: tables
-- those that take requests: all, or one; by name, and only those that are there
SELECT i.table_id, s.schema_name, t.table_name, i.key, i.policy, i.dedupe, i.retention, i.cursor
FROM lakemill.ingest_tables i
JOIN {catalog}.ducklake_table t ON t.table_id = i.table_id AND t.end_snapshot IS NULL
JOIN {catalog}.ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE %(table_id)s::bigint IS NULL OR i.table_id = %(table_id)s
ORDER BY s.schema_name, t.table_name;

-- name: lag
-- how far each table is: what is not yet passed, and since when the oldest of it waits
SELECT i.table_id, count(b.token), coalesce(sum(b.records), 0)::bigint, coalesce(sum(b.bytes), 0)::bigint,
       extract(epoch FROM clock_timestamp() - min(b.accepted_at))::float8, i.cursor, i.attempts, i.reason,
       (SELECT count(*) FROM lakemill.dead_letters d WHERE d.table_id = i.table_id AND d.state = 'waiting')
FROM lakemill.ingest_tables i LEFT JOIN lakemill.bus b ON b.table_id = i.table_id AND b.token > i.cursor
GROUP BY i.table_id;

-- name: set
-- what a table accepts; NULL: as it is
UPDATE lakemill.ingest_tables SET key = coalesce(%(key)s::text[], key), policy = coalesce(%(policy)s, policy),
  dedupe = coalesce(%(dedupe)s, dedupe), retention = coalesce(%(retention)s, retention)
WHERE table_id = %(table_id)s RETURNING table_id;

-- name: lock
-- nobody accepts requests for it, or publishes a batch of it, until we commit
SELECT cursor FROM lakemill.ingest_tables WHERE table_id = %(table_id)s FOR UPDATE;

-- name: pending
-- requests that are accepted and not yet passed
SELECT count(*) FROM lakemill.bus b JOIN lakemill.ingest_tables i USING (table_id)
WHERE b.table_id = %(table_id)s AND b.token > i.cursor;

-- name: delete
-- it takes no more requests; what hangs on it goes with it
DELETE FROM lakemill.ingest_tables WHERE table_id = %(table_id)s;

-- name: delete_request_keys
-- nor are its keys remembered
DELETE FROM lakemill.request_keys WHERE table_id = %(table_id)s;

-- name: delete_record_keys
-- nor those of its records
DELETE FROM lakemill.record_keys WHERE table_id = %(table_id)s;

-- name: readers
-- dynamic tables that read it directly
SELECT DISTINCT d.schema_name, d.table_name
FROM lakemill.sources s JOIN lakemill.dynamic_tables d ON d.dynamic_id = s.dynamic_id AND d.definition_version = s.version
WHERE s.table_id = %(table_id)s AND s.kind = 'TABLE' ORDER BY 1, 2;

-- name: expression_defaults
-- columns whose default is an expression, not a value
SELECT column_id FROM {catalog}.ducklake_column
WHERE table_id = %(table_id)s AND end_snapshot IS NULL AND default_value_type = 'expression';

-- name: schema_version
-- grows with every change of any table's columns
SELECT schema_version FROM {catalog}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1;

-- name: letters
-- dead letters, the newest first: of some tables or of all, in one state or in any
SELECT letter_id, table_id, token, position, body, code, reason, place, died_at, state, replayed
FROM lakemill.dead_letters
WHERE (%(tables)s::bigint[] IS NULL OR table_id = ANY(%(tables)s::bigint[])) AND (%(state)s::text IS NULL OR state = %(state)s)
  AND (%(letters)s::bigint[] IS NULL OR letter_id = ANY(%(letters)s::bigint[]))
  AND (%(before)s::bigint IS NULL OR letter_id < %(before)s)
ORDER BY letter_id DESC LIMIT %(most)s;

-- name: drop_letters
-- these, where they wait, will not be replayed
UPDATE lakemill.dead_letters SET state = 'dropped'
WHERE letter_id = ANY(%(letters)s::bigint[]) AND state = 'waiting' RETURNING letter_id;

-- name: letters_of
-- how many records of these requests became letters
SELECT count(*) FROM lakemill.dead_letters WHERE table_id = %(table_id)s AND token = ANY(%(tokens)s::bigint[]);

-- name: evolving
-- one at a time alters this table
SELECT pg_advisory_lock(%(space)s, %(table_id)s::int);

-- name: evolved
-- the next one may
SELECT pg_advisory_unlock(%(space)s, %(table_id)s::int);
