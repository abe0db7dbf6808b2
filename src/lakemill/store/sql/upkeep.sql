-- Reads and the one write of upkeep. The catalog's tables are found by search_path.

-- name: now
-- the server's clock, by which snapshots and removals are dated
SELECT clock_timestamp();

-- name: find_catalog
-- where the catalog's tables are, until the transaction ends
SELECT set_config('search_path', quote_ident(%(search_path)s::text), true);

-- name: snapshots
-- every snapshot that can be read
SELECT snapshot_id, snapshot_time, schema_version, next_file_id FROM ducklake_snapshot ORDER BY snapshot_id;

-- name: labels
-- what every snapshot that can be read says it did
SELECT p.snapshot_id, c.changes_made FROM ducklake_snapshot p LEFT JOIN ducklake_snapshot_changes c USING (snapshot_id);

-- name: every_table
-- every table that some snapshot shows, by its newest name; when it came, and when it was dropped
SELECT DISTINCT ON (t.table_id) t.table_id, s.schema_name, t.table_name,
       min(t.begin_snapshot) OVER same, CASE WHEN bool_or(t.end_snapshot IS NULL) OVER same THEN NULL ELSE max(t.end_snapshot) OVER same END
FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
WINDOW same AS (PARTITION BY t.table_id)
ORDER BY t.table_id, t.begin_snapshot DESC, s.begin_snapshot DESC;

-- name: tables_with_later_deletes
-- tables whose delete files at a snapshot were written after it: their stamps and the commits' labels decide
SELECT DISTINCT table_id FROM ducklake_delete_file
WHERE delete_file_id >= %(next_file_id)s AND begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR end_snapshot > %(at)s);

-- name: scheduled_count
-- files that wait for cleanup
SELECT count(*) FROM ducklake_files_scheduled_for_deletion;

-- name: scheduled
-- files that no snapshot shows any more, and since when; paths start at the data path
SELECT data_file_id, CASE WHEN path_is_relative THEN %(root)s ELSE '' END || path, schedule_start
FROM ducklake_files_scheduled_for_deletion ORDER BY schedule_start, data_file_id;

-- name: referenced
-- every file that a row of the catalog names, of dropped tables too; or those of these names, wherever they lie
SELECT DISTINCT CASE WHEN f.path_is_relative THEN coalesce(t.path, '') ELSE '' END || f.path
FROM (SELECT table_id, path, path_is_relative FROM ducklake_data_file
      UNION ALL SELECT table_id, path, path_is_relative FROM ducklake_delete_file) f
LEFT JOIN (SELECT DISTINCT t.table_id,
             CASE WHEN t.path_is_relative AND s.path_is_relative THEN %(root)s || s.path || t.path
                  WHEN t.path_is_relative THEN s.path || t.path ELSE t.path END AS path
           FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)) t USING (table_id)
WHERE %(names)s::text[] IS NULL OR substring(f.path FROM '[^/]*$') = ANY(%(names)s::text[]);

-- name: unschedule
-- these are gone, or were never to go
DELETE FROM ducklake_files_scheduled_for_deletion f
USING unnest(%(ids)s::bigint[], %(since)s::timestamptz[]) AS g (id, since)
WHERE f.data_file_id = g.id AND f.schedule_start = g.since;

-- name: set_search_path
-- the catalog's schema, for this transaction
SELECT set_config('search_path', quote_ident(%(schema)s), true);

-- name: all_deletes
-- the delete files of a table's live data files, those of earlier snapshots too
SELECT x.delete_file_id, x.data_file_id, x.path, x.path_is_relative, x.begin_snapshot, x.end_snapshot, x.delete_count,
       x.file_size_bytes, x.partial_max, x.encryption_key IS NOT NULL, x.format
FROM ducklake_delete_file x JOIN ducklake_data_file d ON d.data_file_id = x.data_file_id
WHERE x.table_id = %(table)s AND d.end_snapshot IS NULL ORDER BY x.delete_file_id;

-- name: partition_values
-- the partition values of a table's live data files
SELECT p.data_file_id, array_agg(p.partition_value ORDER BY p.partition_key_index)
FROM ducklake_file_partition_value p JOIN ducklake_data_file d ON d.data_file_id = p.data_file_id
WHERE p.table_id = %(table)s AND d.end_snapshot IS NULL GROUP BY p.data_file_id;

-- name: column_versions
-- the snapshots at which the columns of a table changed
SELECT begin_snapshot FROM ducklake_schema_versions WHERE table_id = %(table)s ORDER BY begin_snapshot;

-- name: sort_order
-- the order in which the table's rows are to lie
SELECT e.expression, e.dialect, e.sort_direction, e.null_order
FROM ducklake_sort_info i JOIN ducklake_sort_expression e USING (sort_id, table_id)
WHERE i.table_id = %(table)s AND i.end_snapshot IS NULL ORDER BY e.sort_key_index;
