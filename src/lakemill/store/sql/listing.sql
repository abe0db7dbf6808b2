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

-- name: crowds
-- what the files of every table are like now: small ones, and how many of their rows are deleted
SELECT s.schema_name, t.table_name, count(*) FILTER (WHERE f.file_size_bytes < %(small)s),
       coalesce(sum(f.file_size_bytes) FILTER (WHERE f.file_size_bytes < %(small)s), 0)::bigint,
       sum(f.file_size_bytes)::bigint, sum(f.record_count)::bigint, coalesce(sum(d.delete_count), 0)::bigint
FROM ducklake_table t
JOIN ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
JOIN ducklake_data_file f ON f.table_id = t.table_id AND f.end_snapshot IS NULL
LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND NOT starts_with(t.table_name, '__lakemill_')
GROUP BY s.schema_name, t.table_name;
