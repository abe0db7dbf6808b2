-- How far tables are: tokens that they have passed, and snapshots that showed them.

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

-- name: covered
-- the lake, and the last token that a reader at a snapshot is sure to see: nothing at or below it came later
SELECT h.lake_id, least(h.watermark, (SELECT min(b.first) - 1 FROM lakemill.batches b WHERE b.snapshot_id > %(snapshot)s))
FROM lakemill.bus_head h;

-- name: watermark
-- the lake's, and the last token that was given out
SELECT watermark, token FROM lakemill.bus_head;

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

-- name: shown_by
-- by table: the last snapshot that published a token at or below this one
SELECT table_id, max(snapshot_id) FROM lakemill.batches
WHERE first <= %(token)s AND snapshot_id IS NOT NULL
  AND (%(table_ids)s::bigint[] IS NULL OR table_id = ANY(%(table_ids)s::bigint[]))
GROUP BY table_id;

-- name: letters_of
-- how many records of a request are dead letters that nobody has replayed
SELECT count(*) FROM lakemill.dead_letters WHERE token = %(token)s AND state = 'waiting'
  AND (%(table_ids)s::bigint[] IS NULL OR table_id = ANY(%(table_ids)s::bigint[]));

-- name: reached
-- dynamic tables, those that they read through others too, and the base tables of each; with the data snapshot of its
-- current version
WITH RECURSIVE reach AS (
  SELECT d.dynamic_id AS wanted, d.dynamic_id FROM lakemill.dynamic_tables d WHERE d.dynamic_id = ANY(%(dynamic_ids)s::bigint[])
  UNION
  SELECT r.wanted, s.supplier_id FROM reach r JOIN lakemill.dynamic_tables d USING (dynamic_id)
  JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version
  WHERE s.supplier_id IS NOT NULL)
SELECT r.wanted, r.dynamic_id, d.schema_name, d.table_name, d.state, v.version_id, v.b_hi,
  ARRAY(SELECT s.table_id FROM lakemill.sources s
        WHERE s.dynamic_id = d.dynamic_id AND s.version = d.definition_version AND s.kind = 'TABLE')
FROM reach r JOIN lakemill.dynamic_tables d USING (dynamic_id)
LEFT JOIN lakemill.frontiers f USING (dynamic_id) LEFT JOIN lakemill.versions v ON v.version_id = f.version_id;
