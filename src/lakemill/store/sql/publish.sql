-- The statements of one publish, about in their order (lake/writing has it). Tables of the catalog are found by search_path, ours are in lakemill.
-- Everything from take_snapshot on runs under the commit lock: short statements only.

-- name: find_catalog
-- once per connection: where the catalog's tables are (a path that changes in every transaction costs 50 µs of each)
SELECT set_config('search_path', %(search_path)s::text, false);

-- name: begin
-- READ COMMITTED: after the snapshot row each statement sees the catalog as it is now
BEGIN ISOLATION LEVEL READ COMMITTED;

-- name: set_timeouts
-- a publisher that stops must not stop the lake; LOCAL, so that settling and staging may take their time
SELECT set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true),
       set_config('statement_timeout', %(statement_ms)s::text, true),
       set_config('lock_timeout', %(lock_ms)s::text, true);

-- name: set_timeouts_17
-- the same for PostgreSQL 17 and newer, which can also end a publisher that is busy for too long
SELECT set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true),
       set_config('statement_timeout', %(statement_ms)s::text, true),
       set_config('lock_timeout', %(lock_ms)s::text, true),
       set_config('transaction_timeout', %(transaction_ms)s::text, true);

-- name: take_snapshot
-- the next snapshot row: its primary key is the commit lock that every writer of the lake shares; and, under it, the
-- publish id: one publish per id, also when COMMIT was not answered
WITH taken AS (
  INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
  SELECT s.snapshot_id + 1,
         greatest(clock_timestamp(), s.snapshot_time + interval '1 microsecond'),
         s.schema_version + %(schema_changes)s,
         s.next_catalog_id,
         -- ids of expired newest snapshots must not be given twice
         greatest(s.next_file_id,
                  (SELECT max(data_file_id) + 1 FROM ducklake_data_file),
                  (SELECT max(delete_file_id) + 1 FROM ducklake_delete_file)) + %(file_ids)s
  FROM ducklake_snapshot s ORDER BY s.snapshot_id DESC LIMIT 1
  RETURNING snapshot_id, schema_version, next_catalog_id, next_file_id - %(file_ids)s AS first_id),
named AS (INSERT INTO lakemill.publishes (publish_id, snapshot_id) SELECT %(publish_id)s::uuid, snapshot_id FROM taken)
SELECT * FROM taken;

-- name: newest_snapshots
-- ours must be the newest, and the one before it the one that it was made from; a statement of its own, because the one
-- before may have waited and does not see what happened meanwhile
SELECT snapshot_id, schema_version, next_catalog_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 2;

-- name: snapshots_since
-- how many snapshots there are after each base, to see whether one is missing
SELECT b.base, count(s.snapshot_id) FROM unnest(%(bases)s::bigint[]) AS b (base)
LEFT JOIN ducklake_snapshot s ON s.snapshot_id > b.base GROUP BY b.base;

-- name: labels_since
-- what commits after the oldest base say about these tables; a missing label is a row with NULL
SELECT s.snapshot_id, c.changes_made
FROM ducklake_snapshot s LEFT JOIN ducklake_snapshot_changes c USING (snapshot_id)
WHERE s.snapshot_id > %(base)s AND (c.changes_made IS NULL OR c.changes_made ~ %(table_pattern)s);

-- name: live_tables
-- which of the tables are there now, their partition spec (a reset leaves one without keys: none), and if they have statistics
SELECT t.table_id, p.partition_id, EXISTS (SELECT FROM ducklake_table_stats s WHERE s.table_id = t.table_id)
FROM ducklake_table t
LEFT JOIN ducklake_partition_info p ON p.table_id = t.table_id AND p.end_snapshot IS NULL
  AND EXISTS (SELECT FROM ducklake_partition_column c WHERE c.partition_id = p.partition_id AND c.table_id = p.table_id)
WHERE t.table_id = ANY(%(table_ids)s::bigint[]) AND t.end_snapshot IS NULL;

-- name: live_columns
-- their columns now; put in order by us, because a plan without a sort is one that PostgreSQL keeps
SELECT c.table_id, c.column_order, c.column_id, c.column_name, c.column_type, c.initial_default, c.default_value, c.nulls_allowed,
  c.parent_column
FROM unnest(%(table_ids)s::bigint[]) AS t (id) JOIN ducklake_column c ON c.table_id = t.id WHERE c.end_snapshot IS NULL;

-- name: name_holders
-- live tables and views of these names; names are the same in any case
SELECT schema_id, lower(table_name COLLATE "C"), table_id FROM ducklake_table
WHERE end_snapshot IS NULL AND schema_id = ANY(%(schema_ids)s::bigint[]) AND lower(table_name COLLATE "C") = ANY(%(names)s::text[])
UNION ALL
SELECT schema_id, lower(view_name COLLATE "C"), view_id FROM ducklake_view
WHERE end_snapshot IS NULL AND schema_id = ANY(%(schema_ids)s::bigint[]) AND lower(view_name COLLATE "C") = ANY(%(names)s::text[]);

-- name: stale_files
-- data files that are not live, or whose live delete file is not the one expected
SELECT e.data_file_id FROM {expected} e
LEFT JOIN ducklake_data_file f
  ON f.data_file_id = e.data_file_id AND f.table_id = e.table_id AND f.end_snapshot IS NULL
WHERE f.data_file_id IS NULL
   OR (e.exact AND coalesce((SELECT array_agg(d.delete_file_id) FROM ducklake_delete_file d
         WHERE d.table_id = e.table_id AND d.data_file_id = e.data_file_id AND d.end_snapshot IS NULL), '{{}}')
       <> CASE WHEN e.delete_file_id IS NULL THEN '{{}}'::bigint[] ELSE ARRAY[e.delete_file_id] END)
LIMIT 10;

-- name: column_statistics
-- column statistics of the tables that get files
SELECT table_id, column_id, contains_null, contains_nan, min_value, max_value FROM ducklake_table_column_stats
WHERE table_id = ANY(%(table_ids)s::bigint[]);

-- name: name_mappings
-- name mappings of the tables that get name-mapped files, to use one again
SELECT m.table_id, m.mapping_id, n.column_id, n.source_name, n.target_field_id, n.parent_column, n.is_partition
FROM ducklake_column_mapping m JOIN ducklake_name_mapping n USING (mapping_id)
WHERE m.table_id = ANY(%(table_ids)s::bigint[]) AND m.type = 'map_by_name' ORDER BY m.mapping_id, n.column_id;

-- name: insert_files
-- data files; row ids continue the table's, unless the file holds them
INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format, record_count,
  file_size_bytes, footer_size, row_id_start, partition_id, mapping_id, partial_max)
SELECT %(first_id)s::bigint + f.place, f.table_id, coalesce(f.begin_snapshot, %(snapshot_id)s::bigint), f.path, f.path_is_relative, 'parquet',
  f.record_count, f.file_size_bytes, f.footer_size, coalesce(t.next_row_id, 0) + f.row_offset, f.partition_id,
  (%(mapping_ids)s::bigint[])[f.mapping], f.partial_max
FROM {files} f LEFT JOIN ducklake_table_stats t USING (table_id) ORDER BY f.place;

-- name: insert_file_columns
-- statistics of each file's columns
INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, value_count, null_count,
  min_value, max_value, contains_nan)
SELECT %(first_id)s::bigint + c.place, c.table_id, c.column_id, c.column_size_bytes, c.value_count, c.null_count, c.min_value,
  c.max_value, c.contains_nan
FROM {file_columns} c;

-- name: insert_partition_values
-- partition values of each file
INSERT INTO ducklake_file_partition_value (data_file_id, table_id, partition_key_index, partition_value)
SELECT %(first_id)s::bigint + p.place, p.table_id, p.key_index, p.value FROM {partition_values} p;

-- name: insert_mapping
-- a new name mapping
INSERT INTO ducklake_column_mapping (mapping_id, table_id, type) VALUES (%(mapping_id)s, %(table_id)s, 'map_by_name');

-- name: insert_mapping_names
-- and its names
INSERT INTO ducklake_name_mapping (mapping_id, column_id, source_name, target_field_id, parent_column, is_partition)
SELECT %(mapping_id)s::bigint, * FROM unnest(%(locals)s::bigint[], %(sources)s::text[], %(targets)s::bigint[], %(parents)s::bigint[],
  %(partitions)s::boolean[]);

-- name: end_replaced_deletes
-- the delete files whose place is taken
UPDATE ducklake_delete_file x SET end_snapshot = %(snapshot_id)s
FROM {deletes} d WHERE x.delete_file_id = d.replaces AND x.end_snapshot IS NULL;

-- name: insert_deletes
-- delete files: of a named data file, or of a merged file of this commit
INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path, path_is_relative, format,
  delete_count, file_size_bytes, footer_size, partial_max)
SELECT %(first_id)s::bigint + d.place, d.table_id, coalesce(d.begin_snapshot, %(snapshot_id)s::bigint),
  coalesce(d.data_file_id, %(first_id)s::bigint + d.file_place), d.path, d.path_is_relative, 'parquet', d.delete_count,
  d.file_size_bytes, d.footer_size, CASE WHEN d.begin_snapshot IS NOT NULL THEN %(snapshot_id)s::bigint END
FROM {deletes} d;

-- name: end_files
-- data files that disappear from this snapshot on
UPDATE ducklake_data_file f SET end_snapshot = %(snapshot_id)s
FROM {ended} e WHERE f.data_file_id = e.data_file_id AND f.end_snapshot IS NULL;

-- name: end_deletes_of_files
-- and their delete files with them
UPDATE ducklake_delete_file d SET end_snapshot = %(snapshot_id)s
FROM {ended} e WHERE d.table_id = e.table_id AND d.data_file_id = e.data_file_id AND d.end_snapshot IS NULL;

-- name: schedule_merged
-- merged sources and their delete files wait for cleanup; scheduled paths start at the data path, not at the table
INSERT INTO ducklake_files_scheduled_for_deletion (data_file_id, path, path_is_relative, schedule_start)
SELECT x.id,
  CASE WHEN x.path_is_relative AND t.path_is_relative THEN s.path || t.path || x.path
       WHEN x.path_is_relative THEN t.path || x.path ELSE x.path END,
  x.path_is_relative AND t.path_is_relative AND s.path_is_relative, now()
FROM (SELECT f.data_file_id AS id, f.table_id, f.path, f.path_is_relative
      FROM ducklake_data_file f JOIN {merged} m USING (data_file_id)
      UNION ALL
      SELECT d.delete_file_id, d.table_id, d.path, d.path_is_relative
      FROM ducklake_delete_file d JOIN {merged} m USING (table_id, data_file_id)) x
JOIN ducklake_table t ON t.table_id = x.table_id AND t.end_snapshot IS NULL
JOIN ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL;

-- name: remove_merged_columns
-- merged sources leave every snapshot: their statistics,
DELETE FROM ducklake_file_column_stats c USING {merged} m WHERE c.data_file_id = m.data_file_id;

-- name: remove_merged_variants
-- their variants' statistics,
DELETE FROM ducklake_file_variant_stats c USING {merged} m WHERE c.data_file_id = m.data_file_id;

-- name: remove_merged_partitions
-- their partition values,
DELETE FROM ducklake_file_partition_value p USING {merged} m WHERE p.data_file_id = m.data_file_id;

-- name: remove_merged_deletes
-- their delete files, ended ones too,
DELETE FROM ducklake_delete_file d USING {merged} m WHERE d.table_id = m.table_id AND d.data_file_id = m.data_file_id;

-- name: remove_merged_files
-- and themselves
DELETE FROM ducklake_data_file f USING {merged} m WHERE f.data_file_id = m.data_file_id AND f.end_snapshot IS NULL;

-- name: add_totals
-- totals of a table that has statistics
UPDATE ducklake_table_stats t SET record_count = t.record_count + a.records, next_row_id = t.next_row_id + a.row_ids,
  file_size_bytes = t.file_size_bytes + a.size_bytes
FROM json_to_recordset(%(totals)s::json) AS a (table_id bigint, records bigint, row_ids bigint, size_bytes bigint)
WHERE t.table_id = a.table_id;

-- name: insert_totals
-- totals of a table's first files
INSERT INTO ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes)
SELECT * FROM json_to_recordset(%(totals)s::json) AS a (table_id bigint, records bigint, row_ids bigint, size_bytes bigint);

-- name: insert_columns
-- column statistics of a table's first files; a column without exact bounds gets no row, for ever
INSERT INTO ducklake_table_column_stats (table_id, column_id, contains_null, contains_nan, min_value, max_value)
SELECT * FROM json_to_recordset(%(columns)s::json) AS n (table_id bigint, column_id bigint, contains_null boolean,
  contains_nan boolean, min_value text, max_value text);

-- name: update_columns
-- column statistics that grew
UPDATE ducklake_table_column_stats t
SET contains_null = n.contains_null, contains_nan = n.contains_nan, min_value = n.min_value, max_value = n.max_value
FROM json_to_recordset(%(columns)s::json) AS n (table_id bigint, column_id bigint, contains_null boolean,
  contains_nan boolean, min_value text, max_value text)
WHERE t.table_id = n.table_id AND t.column_id = n.column_id;

-- name: remove_columns
-- column statistics that are no longer exact
DELETE FROM ducklake_table_column_stats t
USING json_to_recordset(%(columns)s::json) AS g (table_id bigint, column_id bigint)
WHERE t.table_id = g.table_id AND t.column_id = g.column_id;

-- name: end_table
-- a table's name row ends
UPDATE ducklake_table SET end_snapshot = %(snapshot_id)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- name: give_name
-- the row of the same table under its new name; its files stay where they are: a relative path starts at the schema's
-- folder, so that in another schema it is written out
INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path, path_is_relative)
SELECT t.table_id, t.table_uuid, %(snapshot_id)s::bigint, %(schema_id)s::bigint, %(name)s::text,
  CASE WHEN t.path_is_relative AND s.schema_id <> %(schema_id)s THEN
         CASE WHEN s.path_is_relative THEN (SELECT value FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL)
              ELSE '' END || s.path || t.path
       ELSE t.path END,
  t.path_is_relative AND s.schema_id = %(schema_id)s
FROM ducklake_table t JOIN ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.table_id = %(table_id)s AND t.end_snapshot = %(snapshot_id)s;

-- name: end_partitions
-- what ends with a dropped table: partition specs,
UPDATE ducklake_partition_info SET end_snapshot = %(snapshot_id)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- name: end_columns
-- columns,
UPDATE ducklake_column SET end_snapshot = %(snapshot_id)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- name: end_column_tags
-- comments of columns,
UPDATE ducklake_column_tag SET end_snapshot = %(snapshot_id)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- name: end_table_files
-- data files,
UPDATE ducklake_data_file SET end_snapshot = %(snapshot_id)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- name: end_table_deletes
-- delete files,
UPDATE ducklake_delete_file SET end_snapshot = %(snapshot_id)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- name: end_tags
-- comments,
UPDATE ducklake_tag SET end_snapshot = %(snapshot_id)s WHERE object_id = %(table_id)s AND end_snapshot IS NULL;

-- name: end_sorting
-- sort orders
UPDATE ducklake_sort_info SET end_snapshot = %(snapshot_id)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- name: insert_schema_version
-- a table that got its name at this snapshot (compaction groups files by it)
INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id)
VALUES (%(snapshot_id)s, %(schema_version)s, %(table_id)s);

-- name: insert_changes
-- what the commit says of itself
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message, commit_extra_info)
VALUES (%(snapshot_id)s, %(changes)s, %(author)s, %(message)s, %(extra)s);

-- name: settle
-- a commit that was not answered: this waits for it; a duplicate key means published, success means never
INSERT INTO lakemill.publishes (publish_id, snapshot_id) VALUES (%(publish_id)s, NULL);

-- name: published
-- what became of a publish id; no row: not tried, or not yet settled; NULL: it will never be
SELECT snapshot_id FROM lakemill.publishes WHERE publish_id = %(publish_id)s;
