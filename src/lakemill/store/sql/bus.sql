-- The accepting side of the bus: requests get their tokens, keys are remembered, letters written.

-- name: ensure_tables
-- those of these tables that take requests, with their keys; neither can change before we commit
SELECT table_id, key FROM lakemill.ingest_tables WHERE table_id = ANY(%(tables)s::bigint[]) ORDER BY table_id FOR KEY SHARE;

-- name: waiting_letters
-- those of these letters that nobody replayed or dropped; nobody will before we commit
SELECT letter_id FROM lakemill.dead_letters
WHERE letter_id = ANY(%(letters)s::bigint[]) AND state = 'waiting' ORDER BY letter_id FOR NO KEY UPDATE;

-- name: lock_head
-- the last token, ours until we commit: so tokens have no gaps, and commit in their order
SELECT token FROM lakemill.bus_head FOR UPDATE;

-- name: known_requests
-- which of these requests were accepted before, within their tables' windows
SELECT k.table_id, k.key, k.token, k.digest, k.answer
FROM unnest(%(tables)s::bigint[], %(keys)s::text[]) w (table_id, key)
CROSS JOIN LATERAL (  -- LIMIT: one probe of the index a key, whatever the statistics say
  SELECT * FROM lakemill.request_keys r WHERE r.table_id = w.table_id AND r.key = w.key LIMIT 1) k
WHERE k.accepted_at > clock_timestamp() - (SELECT t.dedupe FROM lakemill.ingest_tables t WHERE t.table_id = k.table_id);

-- name: known_records
-- which of these records were accepted before, within their tables' windows
SELECT k.table_id, k.key, k.token, k.digest
FROM unnest(%(tables)s::bigint[], %(keys)s::text[]) w (table_id, key)
CROSS JOIN LATERAL (  -- LIMIT: one probe of the index a key, whatever the statistics say
  SELECT * FROM lakemill.record_keys r WHERE r.table_id = w.table_id AND r.key = w.key LIMIT 1) k
WHERE k.accepted_at > clock_timestamp() - (SELECT t.dedupe FROM lakemill.ingest_tables t WHERE t.table_id = k.table_id);

-- name: write
-- all that was accepted; how many keys of records were written: one that is there is replaced only where it was looked up
WITH moved AS (
  UPDATE lakemill.bus_head SET token = %(head)s WHERE token = %(before)s RETURNING token),
committed AS (
  INSERT INTO lakemill.bus_commits (commit_id, token) VALUES (%(commit_id)s, %(head)s)),
requests AS (
  INSERT INTO lakemill.bus (token, table_id, columns, records, bytes, body)
  SELECT * FROM unnest(%(tokens)b::bigint[], %(tables)b::bigint[], %(columns)b::text[], %(records)b::int[],
                       %(bytes)b::int[], %(bodies)b::text[])),
of_requests AS (
  INSERT INTO lakemill.request_keys (table_id, key, token, digest, answer)
  SELECT * FROM unnest(%(request_tables)b::bigint[], %(request_keys)b::text[], %(request_tokens)b::bigint[],
                       %(request_digests)b::bytea[], %(answers)s::jsonb[])
  ON CONFLICT (table_id, key) DO UPDATE SET token = excluded.token, digest = excluded.digest,
    answer = excluded.answer, accepted_at = excluded.accepted_at),
of_records AS (
  INSERT INTO lakemill.record_keys (table_id, key, token, digest)
  SELECT * FROM unnest(%(record_tables)b::bigint[], %(record_keys)b::text[], %(record_tokens)b::bigint[],
                       %(record_digests)b::bytea[])
  ON CONFLICT (table_id, key) DO UPDATE SET token = excluded.token, digest = excluded.digest,
    accepted_at = excluded.accepted_at WHERE %(looked_up)s RETURNING 1),
letters AS (
  INSERT INTO lakemill.dead_letters (refused, table_id, token, position, body, code, reason, place)
  SELECT true, * FROM unnest(%(letter_tables)b::bigint[], %(letter_tokens)b::bigint[], %(letter_positions)b::int[],
                       %(letter_bodies)b::text[], %(letter_codes)b::text[], %(letter_reasons)b::text[],
                       %(letter_places)b::text[])),
replayed AS (
  UPDATE lakemill.dead_letters d SET state = 'replayed', replayed = r.token
  FROM unnest(%(replayed)b::bigint[], %(replayed_tokens)b::bigint[]) r (letter_id, token)
  WHERE d.letter_id = r.letter_id)
SELECT (SELECT count(*) FROM of_records), pg_notify(%(channel)s, '') FROM moved;

-- name: settle
-- a commit whose answer was lost: a new row means that it never was, and now never will be
INSERT INTO lakemill.bus_commits (commit_id) VALUES (%(commit_id)s) ON CONFLICT (commit_id) DO NOTHING RETURNING commit_id;

-- name: settled
-- how it was settled: the token, or NULL
SELECT token FROM lakemill.bus_commits WHERE commit_id = %(commit_id)s;

-- name: head
-- which lake this is, the last token, and how far everything is visible
SELECT lake_id, token, watermark FROM lakemill.bus_head;

-- name: backlog
-- what was accepted and is not yet passed: requests, records, bytes, seconds since the oldest was accepted
SELECT count(*), coalesce(sum(b.records), 0)::bigint, coalesce(sum(b.bytes), 0)::bigint,
       coalesce(extract(epoch FROM clock_timestamp() - min(b.accepted_at)), 0)::float8
FROM lakemill.ingest_tables t JOIN lakemill.bus b ON b.table_id = t.table_id AND b.token > t.cursor;

-- name: forgetting
-- whether it is our turn to forget, until the connection ends
SELECT pg_try_advisory_lock(%(lock)s);

-- name: forget_records
-- keys of records whose window is over, at most so many
DELETE FROM lakemill.record_keys WHERE ctid = ANY(ARRAY(
  SELECT k.ctid FROM lakemill.record_keys k LEFT JOIN lakemill.ingest_tables t USING (table_id)
  WHERE k.accepted_at < clock_timestamp() - (SELECT coalesce(min(dedupe), '0') FROM lakemill.ingest_tables)
    AND k.accepted_at < clock_timestamp() - coalesce(t.dedupe, '0') LIMIT %(most)s));

-- name: forget_requests
-- keys of requests whose window is over, at most so many
DELETE FROM lakemill.request_keys WHERE ctid = ANY(ARRAY(
  SELECT k.ctid FROM lakemill.request_keys k LEFT JOIN lakemill.ingest_tables t USING (table_id)
  WHERE k.accepted_at < clock_timestamp() - (SELECT coalesce(min(dedupe), '0') FROM lakemill.ingest_tables)
    AND k.accepted_at < clock_timestamp() - coalesce(t.dedupe, '0') LIMIT %(most)s));

-- name: forget_commits
-- commits that nobody asks about any more
DELETE FROM lakemill.bus_commits WHERE accepted_at < clock_timestamp() - interval '1 hour';

-- name: forget_letters
-- settled letters whose retention is over
DELETE FROM lakemill.dead_letters d USING lakemill.ingest_tables t
WHERE d.table_id = t.table_id AND d.state <> 'waiting' AND d.died_at < clock_timestamp() - coalesce(t.retention, '30 days');
