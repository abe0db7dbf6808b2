-- Batches: from requests that wait in the bus to the ledger of what became visible. One writer a table, by its claim.

-- name: pending
-- tables with requests that wait, the longest first: how many (not more than a limit are looked at), since when, how long
-- they have to be left alone, and for how long somebody works on them
SELECT t.table_id, t.attempts, p.requests, p.records, p.bytes,
  extract(epoch FROM clock_timestamp() - p.oldest)::float8,
  greatest(0, extract(epoch FROM greatest(t.not_before, clock_timestamp()) - clock_timestamp()))::float8,
  greatest(0, extract(epoch FROM greatest(t.expires_at, clock_timestamp()) - clock_timestamp()))::float8
FROM lakemill.ingest_tables t
CROSS JOIN LATERAL (
  SELECT count(*) AS requests, coalesce(sum(b.records), 0)::bigint AS records, coalesce(sum(b.bytes), 0)::bigint AS bytes,
    min(b.accepted_at) AS oldest
  FROM (SELECT b.records, b.bytes, b.accepted_at FROM lakemill.bus b
        WHERE b.table_id = t.table_id AND b.token > t.cursor ORDER BY b.token LIMIT %(most)s) b) p
WHERE p.requests > 0 ORDER BY p.oldest;

-- name: any_table
-- whether any table takes requests
SELECT EXISTS (SELECT FROM lakemill.ingest_tables);

-- name: claim
-- nobody works on the table: ours, with a new number; no row when somebody does, or it has to be left alone
UPDATE lakemill.ingest_tables
SET fence = fence + 1, holder = %(holder)s, expires_at = clock_timestamp() + %(lease)s
WHERE table_id = %(table_id)s AND expires_at <= clock_timestamp() AND not_before <= clock_timestamp()
RETURNING fence, cursor, key, policy, attempts;

-- name: extend
-- it takes longer; a claim that has run out may be somebody else's plan already
UPDATE lakemill.ingest_tables SET expires_at = clock_timestamp() + %(lease)s
WHERE table_id = %(table_id)s AND fence = %(fence)s AND expires_at > clock_timestamp()
RETURNING true;

-- name: release
-- done, or left to others; nothing happens when it was lost
UPDATE lakemill.ingest_tables SET holder = NULL, expires_at = '-infinity'
WHERE table_id = %(table_id)s AND fence = %(fence)s;

-- name: requeue_expired
-- tables whose holder was silent for too long: they are free already, and nobody is named any more
UPDATE lakemill.ingest_tables SET holder = NULL, expires_at = '-infinity'
WHERE holder IS NOT NULL AND expires_at <= clock_timestamp() RETURNING table_id;

-- name: held
-- who works on which table
SELECT table_id, holder FROM lakemill.ingest_tables WHERE holder IS NOT NULL AND expires_at > clock_timestamp();

-- name: take_away
-- of one who is gone
UPDATE lakemill.ingest_tables SET holder = NULL, expires_at = '-infinity'
WHERE table_id = %(table_id)s AND holder = %(holder)s;

-- name: read
-- the next requests of a table, up to limits (one at least), in parts of about equal bytes
WITH next AS (
  SELECT b.*, sum(bytes) OVER w AS bytes_so_far, sum(records) OVER w AS records_so_far
  FROM (SELECT token, records, bytes, columns, accepted_at FROM lakemill.bus
        WHERE table_id = %(table_id)s AND token > %(cursor)s ORDER BY token LIMIT %(requests)s) b
  WINDOW w AS (ORDER BY token)),
taken AS (
  SELECT *, (bytes_so_far - bytes) / %(part)s AS part FROM next
  WHERE bytes_so_far - bytes < %(bytes)s AND records_so_far - records < %(records)s)
SELECT min(token), max(token), count(*), sum(records)::bigint, sum(bytes)::bigint, min(accepted_at),
  array_agg(DISTINCT columns)
FROM taken GROUP BY part ORDER BY part;

-- name: bodies
-- the requests of a part, on an executor
SELECT token, body FROM lakemill.bus
WHERE table_id = %(table_id)s AND token > %(after)s AND token <= %(upto)s ORDER BY token;

-- name: tokens
-- which requests a range holds, and of how many records
SELECT token, records FROM lakemill.bus
WHERE table_id = %(table_id)s AND token > %(after)s AND token <= %(upto)s ORDER BY token;

-- name: records
-- single records as they stand in the bus
SELECT b.token, w.position, split_part(b.body, E'\n', w.position + 1)
FROM unnest(%(tokens)s::bigint[], %(positions)s::int[]) AS w (token, position) JOIN lakemill.bus b USING (token);

-- name: lock
-- the table's claim and cursor as they are, held until the transaction ends. NO KEY: whoever accepts a request for the
-- table takes a share of its key, and holds the head, which a publish takes after this
SELECT fence, holder, expires_at > clock_timestamp(), cursor, key FROM lakemill.ingest_tables
WHERE table_id = %(table_id)s FOR NO KEY UPDATE;

-- name: move
-- a batch is passed: cursor and ledger, and its dead letters; the claim is over
WITH moved AS (
  UPDATE lakemill.ingest_tables
  SET cursor = %(token)s, attempts = 0, not_before = '-infinity', reason = '', holder = NULL, expires_at = '-infinity'
  WHERE table_id = %(table_id)s AND cursor = %(cursor)s AND fence = %(fence)s RETURNING table_id),
ledger AS (
  INSERT INTO lakemill.batches (table_id, token, first, snapshot_id, records, letters, accepted_at)
  SELECT table_id, %(token)s, %(first)s, %(snapshot_id)s::bigint, %(records)s, %(letters)s, %(accepted_at)s FROM moved),
dead AS (
  INSERT INTO lakemill.dead_letters (table_id, token, position, body, code, reason, place)
  SELECT m.table_id, d.* FROM moved m, unnest(%(tokens)s::bigint[], %(positions)s::int[], %(bodies)s::text[],
    %(codes)s::text[], %(reasons)s::text[], %(places)s::text[]) AS d
  ON CONFLICT (table_id, token, refused, position) DO NOTHING)
SELECT table_id FROM moved;

-- name: bury
-- every record of these requests becomes a dead letter, for one reason
INSERT INTO lakemill.dead_letters (table_id, token, position, body, code, reason)
SELECT b.table_id, b.token, r.ordinality - 1, r.line, %(code)s, %(reason)s
FROM lakemill.bus b CROSS JOIN LATERAL string_to_table(b.body, E'\n') WITH ORDINALITY AS r (line, ordinality)
WHERE b.table_id = %(table_id)s AND b.token > %(after)s AND b.token <= %(upto)s
ON CONFLICT (table_id, token, refused, position) DO NOTHING;

-- name: lock_head
-- nobody accepts a request until the transaction ends; a statement of its own, so that the next one sees what was accepted
SELECT token FROM lakemill.bus_head FOR NO KEY UPDATE;

-- name: raise_watermark
-- the largest token that every table has passed
UPDATE lakemill.bus_head h SET watermark = w.passed
FROM (SELECT coalesce(min(b.token) - 1, (SELECT token FROM lakemill.bus_head)) AS passed
      FROM lakemill.ingest_tables t CROSS JOIN LATERAL (
        SELECT token FROM lakemill.bus WHERE table_id = t.table_id AND token > t.cursor ORDER BY token LIMIT 1) b) w
WHERE h.watermark < w.passed;

-- name: nack
-- it was tried in vain: left alone for a while, with the reason; the claim is over
UPDATE lakemill.ingest_tables
SET attempts = attempts + 1, not_before = clock_timestamp() + %(pause)s, reason = %(reason)s,
  holder = NULL, expires_at = '-infinity'
WHERE table_id = %(table_id)s AND fence = %(fence)s AND cursor = %(cursor)s
  AND holder IS NOT NULL AND expires_at > clock_timestamp() RETURNING attempts;

-- name: versions
-- for which version of the columns each request of a range was accepted
SELECT columns FROM lakemill.bus
WHERE table_id = %(table_id)s AND token > %(after)s AND token <= %(upto)s ORDER BY token;

-- name: table_watermark
-- the last token that a table has passed, whether it had anything to do with it or not; no row where it takes no requests
SELECT coalesce((SELECT b.token - 1 FROM lakemill.bus b WHERE b.table_id = t.table_id AND b.token > t.cursor
                 ORDER BY b.token LIMIT 1), h.token)
FROM lakemill.ingest_tables t CROSS JOIN lakemill.bus_head h WHERE t.table_id = %(table_id)s;

-- name: not_passed
-- of these tables (NULL: of all), those with a request at or below a token that waits
SELECT t.table_id FROM lakemill.ingest_tables t
CROSS JOIN LATERAL (
  SELECT FROM lakemill.bus b WHERE b.table_id = t.table_id AND b.token > t.cursor AND b.token <= %(token)s LIMIT 1) b
WHERE %(table_ids)s::bigint[] IS NULL OR t.table_id = ANY(%(table_ids)s::bigint[]) ORDER BY t.table_id;

-- name: remove_passed
-- requests that no batch can need: a batch begins at the cursor
DELETE FROM lakemill.bus WHERE token = ANY(ARRAY(
  SELECT b.token FROM lakemill.ingest_tables t CROSS JOIN LATERAL (
    SELECT token FROM lakemill.bus WHERE table_id = t.table_id AND token <= t.cursor ORDER BY token LIMIT %(most)s) b));

-- name: forget
-- the ledger's old part as one row a table, which claims a little more than it did: from the first token on, all of it was
-- visible at the last snapshot. So a token's snapshot is never told too early
WITH old AS (
  SELECT table_id, max(token) AS token, min(first) AS first, max(snapshot_id) AS snapshot_id, sum(records) AS records,
    sum(letters) AS letters, min(accepted_at) AS accepted_at, max(passed_at) AS passed_at
  FROM lakemill.batches WHERE passed_at < clock_timestamp() - %(age)s::interval
  GROUP BY table_id HAVING count(*) > 1),
gone AS (
  DELETE FROM lakemill.batches b USING old WHERE b.table_id = old.table_id AND b.token < old.token)
UPDATE lakemill.batches b SET first = old.first, snapshot_id = old.snapshot_id,
  records = least(old.records, 2147483647), letters = least(old.letters, 2147483647), accepted_at = old.accepted_at
FROM old WHERE b.table_id = old.table_id AND b.token = old.token;
