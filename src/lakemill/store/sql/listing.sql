-- What `lakemill tables`, `snapshots` and `list` list. The search_path is the catalog's schema.

-- name: tables
-- tables at a snapshot, with what their files hold; whether rows or deletes of them may live in the catalog itself.
-- Lakemill's own are left out: hidden states, and tables that wait for their name
SELECT s.schema_name, t.table_name, t.table_id,
       (SELECT count(*) FROM ducklake_column c
        WHERE c.table_id = t.table_id AND c.parent_column IS NULL
          AND c.begin_snapshot <= %(at)s AND (c.end_snapshot IS NULL OR c.end_snapshot > %(at)s)),
       f.files, f.bytes, d.files, f.rows - d.rows,
       EXISTS (SELECT FROM ducklake_inlined_data_tables i WHERE i.table_id = t.table_id)
         OR to_regclass('ducklake_inlined_delete_' || t.table_id) IS NOT NULL
FROM ducklake_table t
JOIN ducklake_schema s USING (schema_id)
CROSS JOIN LATERAL (
  SELECT count(*) AS files, coalesce(sum(file_size_bytes), 0)::bigint AS bytes,
         coalesce(sum(record_count), 0)::bigint AS rows
  FROM ducklake_data_file x
  WHERE x.table_id = t.table_id AND x.begin_snapshot <= %(at)s
    AND (x.end_snapshot IS NULL OR x.end_snapshot > %(at)s)) f
CROSS JOIN LATERAL (
  SELECT count(*) AS files, coalesce(sum(delete_count), 0)::bigint AS rows FROM ducklake_delete_file x
  WHERE x.table_id = t.table_id AND x.begin_snapshot <= %(at)s
    AND (x.end_snapshot IS NULL OR x.end_snapshot > %(at)s)
    AND EXISTS (  -- stock DuckDB ends a file without rows, and not its delete file
      SELECT FROM ducklake_data_file o
      WHERE o.data_file_id = x.data_file_id AND o.begin_snapshot <= %(at)s
        AND (o.end_snapshot IS NULL OR o.end_snapshot > %(at)s))) d
WHERE t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s)
  AND s.schema_name <> '_lakemill' AND NOT starts_with(t.table_name, '__lakemill_')
ORDER BY s.schema_name, t.table_name;

-- name: views
-- views at a snapshot
SELECT s.schema_name, v.view_name
FROM ducklake_view v JOIN ducklake_schema s USING (schema_id)
WHERE v.begin_snapshot <= %(at)s AND (v.end_snapshot IS NULL OR v.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s)
ORDER BY s.schema_name, v.view_name;

-- name: snapshots
-- the newest snapshots, and what each says that it did
SELECT p.snapshot_id, p.snapshot_time, p.schema_version, c.changes_made, c.author, c.commit_message
FROM ducklake_snapshot p LEFT JOIN ducklake_snapshot_changes c USING (snapshot_id)
WHERE p.snapshot_id <= %(before)s
ORDER BY p.snapshot_id DESC LIMIT %(limit)s;

-- name: names
-- the newest name of each of these tables, dropped ones included
SELECT DISTINCT ON (t.table_id) t.table_id, s.schema_name, t.table_name
FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
WHERE t.table_id = ANY(%(ids)s)
ORDER BY t.table_id, t.begin_snapshot DESC, s.begin_snapshot DESC;

-- name: newest
-- the newest snapshot's id
SELECT max(snapshot_id) FROM ducklake_snapshot;

-- name: commits
-- the commits after a snapshot, up to another (NULL: all), and what each says that it did, oldest first
SELECT p.snapshot_id, p.snapshot_time, c.changes_made
FROM {catalog}.ducklake_snapshot p LEFT JOIN {catalog}.ducklake_snapshot_changes c USING (snapshot_id)
WHERE p.snapshot_id > %(after)s AND (%(until)s::bigint IS NULL OR p.snapshot_id <= %(until)s) ORDER BY p.snapshot_id;

-- name: inlining
-- tables that have a place for rows or deletes in the catalog itself, whether it holds any or not
SELECT s.schema_name, t.table_name
FROM ducklake_table t JOIN ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND NOT starts_with(t.table_name, '__lakemill_')
  AND (EXISTS (SELECT FROM ducklake_inlined_data_tables i WHERE i.table_id = t.table_id)
       OR to_regclass('ducklake_inlined_delete_' || t.table_id) IS NOT NULL)
ORDER BY s.schema_name, t.table_name;

-- name: inlined_places
-- where rows and deletes of these tables would lie in the catalog
SELECT s.schema_name, t.table_name,
       (SELECT coalesce(array_agg(i.table_name), '{}') FROM ducklake_inlined_data_tables i
        WHERE i.table_id = t.table_id AND to_regclass(quote_ident(i.table_name)) IS NOT NULL),
       CASE WHEN to_regclass('ducklake_inlined_delete_' || t.table_id) IS NOT NULL THEN 'ducklake_inlined_delete_' || t.table_id END
FROM ducklake_table t JOIN ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND NOT starts_with(t.table_name, '__lakemill_')
  AND (EXISTS (SELECT FROM ducklake_inlined_data_tables i WHERE i.table_id = t.table_id)
       OR to_regclass('ducklake_inlined_delete_' || t.table_id) IS NOT NULL)
ORDER BY s.schema_name, t.table_name;

-- name: live_inlined_rows
-- whether rows are inlined there
SELECT {number} WHERE EXISTS (SELECT FROM {table} WHERE end_snapshot IS NULL);

-- name: inlined_deletes
-- whether deletes are inlined there, of files that are live
SELECT {number} WHERE EXISTS (
  SELECT FROM {table} x JOIN ducklake_data_file f ON f.data_file_id = x.file_id AND f.end_snapshot IS NULL);

-- name: crowds
-- what the files of every table are like now: small ones, how much of them is deleted, and what tells that it changed
WITH sized AS (
  SELECT t.table_id, s.schema_name, t.table_name, coalesce(o.value, %(target)s) AS target,
         CASE WHEN %(small)s > 0 THEN %(small)s ELSE coalesce(o.value, %(target)s) / 4 END AS small
  FROM ducklake_table t
  JOIN ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
  LEFT JOIN LATERAL (
    SELECT m.value::bigint FROM ducklake_metadata m
    WHERE m.key = 'target_file_size' AND m.value ~ '^[0-9]+$'
      AND (m.scope IS NULL OR (m.scope = 'schema' AND m.scope_id = t.schema_id) OR (m.scope = 'table' AND m.scope_id = t.table_id))
    ORDER BY CASE m.scope WHEN 'table' THEN 0 WHEN 'schema' THEN 1 ELSE 2 END LIMIT 1) o ON true
  WHERE t.end_snapshot IS NULL AND NOT starts_with(t.table_name, '__lakemill_')
    AND (%(table)s::text IS NULL OR (lower(s.schema_name COLLATE "C"), lower(t.table_name COLLATE "C"))
         = (lower(%(schema)s::text COLLATE "C"), lower(%(table)s::text COLLATE "C")))),
crowd AS (
  SELECT z.table_id, z.schema_name, z.table_name, z.target, count(f.data_file_id) AS files,
         count(*) FILTER (WHERE f.file_size_bytes < z.small) AS small,
         sum(f.file_size_bytes) FILTER (WHERE f.file_size_bytes < z.small) AS small_bytes,
         sum(f.file_size_bytes) AS bytes, sum(f.record_count) AS rows, sum(d.delete_count) AS deleted,
         sum(f.file_size_bytes::numeric * least(d.delete_count, f.record_count) / greatest(f.record_count, 1)) AS dead_bytes,
         sum(f.file_size_bytes) FILTER (WHERE f.file_size_bytes >= z.small AND d.delete_count > 0) AS dirty_bytes,
         max(f.begin_snapshot) FILTER (WHERE f.file_size_bytes < z.small) AS newest,
         greatest(max(f.data_file_id), max(d.delete_file_id)) AS last_id
  FROM sized z
  LEFT JOIN ducklake_data_file f ON f.table_id = z.table_id AND f.end_snapshot IS NULL
  LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL
  GROUP BY z.table_id, z.schema_name, z.table_name, z.target)
SELECT c.schema_name, c.table_name, c.small, coalesce(c.small_bytes, 0)::bigint, coalesce(c.bytes, 0)::bigint,
       coalesce(c.rows, 0)::bigint, coalesce(c.deleted, 0)::bigint, coalesce(c.dead_bytes, 0)::bigint,
       coalesce(c.dirty_bytes, 0)::bigint, c.target,
       (SELECT p.snapshot_time FROM ducklake_snapshot p WHERE p.snapshot_id >= c.newest ORDER BY p.snapshot_id LIMIT 1),
       c.table_id,
       -- which rows can be dropped depends on the snapshots that are left, too
       concat_ws('.', c.last_id, c.files, CASE WHEN c.deleted > 0 THEN x.expired END)
FROM crowd c CROSS JOIN (SELECT max(snapshot_id) + 1 - count(*) AS expired FROM ducklake_snapshot) x
ORDER BY c.schema_name, c.table_name;
