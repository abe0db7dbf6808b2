-- What the lake keeps of tokens: how far all tables are, and which snapshot showed which.

-- name: head
-- which lake this is, the last token, and how far everything is visible
SELECT lake_id, token, watermark FROM lakemill.bus_head;

-- name: covered
-- the lake, and the last token that a reader at a snapshot is sure to see: nothing at or below it came later
SELECT h.lake_id, least(h.watermark, (SELECT min(b.first) - 1 FROM lakemill.batches b WHERE b.snapshot_id > %(snapshot)s))
FROM lakemill.bus_head h;

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
