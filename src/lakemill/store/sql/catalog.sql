-- Reads of the DuckLake catalog. All run inside one REPEATABLE READ transaction whose search_path is the catalog's schema.

-- name: metadata
-- what the lake says of itself
SELECT key, value FROM ducklake_metadata WHERE scope IS NULL AND key IN ('version', 'data_path');

-- name: head
-- the newest snapshot
SELECT snapshot_id, snapshot_time, schema_version, next_file_id
FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1;

-- name: oldest
-- the oldest snapshot that is left
SELECT min(snapshot_id) FROM ducklake_snapshot;

-- name: snapshot
-- one snapshot
SELECT snapshot_id, snapshot_time, schema_version, next_file_id FROM ducklake_snapshot WHERE snapshot_id = %(id)s;

-- name: labels
-- what the commits of an interval say that they did
SELECT snapshot_id, changes_made FROM ducklake_snapshot JOIN ducklake_snapshot_changes USING (snapshot_id)
WHERE snapshot_id BETWEEN %(first)s AND %(last)s;

-- name: written_since
-- whether anything of a table is younger than a snapshot that is still kept: its files, deletes, columns or name. Rows in
-- the catalog itself are not looked at: where there can be any, the answer is yes
SELECT EXISTS (SELECT FROM ducklake_data_file WHERE table_id = %(table)s
               AND (begin_snapshot > %(since)s OR end_snapshot > %(since)s))
    OR EXISTS (SELECT FROM ducklake_delete_file WHERE table_id = %(table)s
               AND (begin_snapshot > %(since)s OR end_snapshot > %(since)s))
    OR EXISTS (SELECT FROM ducklake_column WHERE table_id = %(table)s
               AND (begin_snapshot > %(since)s OR end_snapshot > %(since)s))
    OR EXISTS (SELECT FROM ducklake_table WHERE table_id = %(table)s
               AND (begin_snapshot > %(since)s OR end_snapshot > %(since)s))
    OR EXISTS (SELECT FROM ducklake_inlined_data_tables WHERE table_id = %(table)s)
    OR to_regclass('ducklake_inlined_delete_' || %(table)s) IS NOT NULL;

-- name: written_by
-- the snapshots between which a file was written, by the file ids they had given out
SELECT 1 + coalesce((SELECT snapshot_id FROM ducklake_snapshot WHERE next_file_id <= %(file)s
                     ORDER BY next_file_id DESC, snapshot_id DESC LIMIT 1), -1),
       (SELECT snapshot_id FROM ducklake_snapshot WHERE next_file_id > %(file)s
        ORDER BY next_file_id, snapshot_id LIMIT 1);

-- name: table_by_name
-- a table at a snapshot, by its name; names are case-insensitive in DuckDB
SELECT t.table_id, t.table_uuid::text, t.schema_id, s.schema_name, t.table_name,
       CASE WHEN t.path_is_relative THEN CASE WHEN s.path_is_relative THEN %(root)s ELSE '' END || s.path ELSE '' END
         || t.path
FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
WHERE lower(s.schema_name COLLATE "C") = lower(%(schema)s::text COLLATE "C") AND lower(t.table_name COLLATE "C") = lower(%(name)s::text COLLATE "C")
  AND t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s);

-- name: table_by_id
-- a table at a snapshot, by its id
SELECT t.table_id, t.table_uuid::text, t.schema_id, s.schema_name, t.table_name,
       CASE WHEN t.path_is_relative THEN CASE WHEN s.path_is_relative THEN %(root)s ELSE '' END || s.path ELSE '' END
         || t.path
FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
WHERE t.table_id = %(id)s
  AND t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s);

-- name: tables_called
-- the tables of a schema, at a snapshot, whose names begin so
SELECT t.table_name FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
WHERE lower(s.schema_name COLLATE "C") = lower(%(schema)s::text COLLATE "C") AND starts_with(t.table_name, %(prefix)s)
  AND t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s);

-- name: columns_version
-- since which snapshot the table has the columns that it has at a snapshot
SELECT coalesce(max(begin_snapshot), 0) FROM ducklake_schema_versions
WHERE table_id = %(table)s AND begin_snapshot <= %(at)s;

-- name: columns
-- the columns of a table at a snapshot, containers before their parts
SELECT column_id, column_name, column_type, initial_default, default_value, nulls_allowed, parent_column
FROM ducklake_column
WHERE table_id = %(table)s AND begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR end_snapshot > %(at)s)
ORDER BY column_order;

-- name: retyped
-- the columns of a table whose type has changed, and all their types
SELECT column_id, array_agg(DISTINCT lower(column_type)) FROM ducklake_column WHERE table_id = %(table)s
GROUP BY column_id HAVING count(DISTINCT lower(column_type)) > 1;

-- name: old_names
-- names that live columns of a table had before
SELECT DISTINCT o.column_name, o.column_id FROM ducklake_column o JOIN ducklake_column n USING (table_id, column_id)
WHERE table_id = %(table)s AND n.end_snapshot IS NULL AND n.parent_column IS NULL AND o.end_snapshot IS NOT NULL
  AND o.column_name <> n.column_name;

-- name: reused_names
-- names that more than one column of a table has had in the same place, and those columns
SELECT coalesce(parent_column, 0), lower(column_name), array_agg(DISTINCT column_id) FROM ducklake_column
WHERE table_id = %(table)s GROUP BY 1, 2 HAVING count(DISTINCT column_id) > 1;

-- name: column_changes
-- the snapshots that changed a table's columns
SELECT at FROM (
  SELECT begin_snapshot AS at FROM ducklake_column WHERE table_id = %(table)s
  UNION SELECT end_snapshot FROM ducklake_column WHERE table_id = %(table)s AND end_snapshot IS NOT NULL) c
ORDER BY at DESC;

-- name: files_at
-- the data files of a table at a snapshot, but for those that its predicate excludes
SELECT d.data_file_id, d.path, d.path_is_relative, d.begin_snapshot, d.end_snapshot, d.partial_max, d.record_count,
       d.file_size_bytes, d.row_id_start, d.mapping_id, d.partition_id, d.encryption_key IS NOT NULL, d.file_format
FROM ducklake_data_file d
WHERE d.table_id = %(table)s AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s)
  AND {kept}
ORDER BY d.data_file_id;

-- name: file_count
-- how many data files a table has at a snapshot
SELECT count(*) FROM ducklake_data_file d
WHERE d.table_id = %(table)s AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s);

-- name: files_changed
-- the data files that can differ between two snapshots: a few index ranges, not the whole table
WITH touched AS (
  SELECT data_file_id FROM ducklake_data_file
  WHERE table_id = %(table)s AND begin_snapshot > %(a)s AND begin_snapshot <= %(b)s
  UNION
  SELECT data_file_id FROM ducklake_data_file
  WHERE table_id = %(table)s AND end_snapshot > %(a)s AND end_snapshot <= %(b)s
  UNION
  SELECT data_file_id FROM ducklake_data_file WHERE table_id = %(table)s AND partial_max > %(a)s
  UNION
  SELECT data_file_id FROM ducklake_delete_file WHERE table_id = %(table)s AND delete_file_id >= %(next_file_id)s
  UNION
  SELECT data_file_id FROM ducklake_delete_file
  WHERE table_id = %(table)s AND end_snapshot > %(a)s AND end_snapshot <= %(b)s
  UNION
  SELECT unnest(%(inlined)s::bigint[]))
SELECT d.data_file_id, d.path, d.path_is_relative, d.begin_snapshot, d.end_snapshot, d.partial_max, d.record_count,
       d.file_size_bytes, d.row_id_start, d.mapping_id, d.partition_id, d.encryption_key IS NOT NULL, d.file_format
FROM ducklake_data_file d JOIN touched USING (data_file_id)
WHERE d.table_id = %(table)s
  AND ((d.begin_snapshot <= %(a)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(a)s))
    OR (d.begin_snapshot <= %(b)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(b)s)))
ORDER BY d.data_file_id;

-- name: deletes_at
-- the delete files of a table's live data files at a snapshot
SELECT x.delete_file_id, x.data_file_id, x.path, x.path_is_relative, x.begin_snapshot, x.end_snapshot, x.delete_count,
       x.file_size_bytes, x.partial_max, x.encryption_key IS NOT NULL, x.format
FROM ducklake_delete_file x JOIN ducklake_data_file d ON d.data_file_id = x.data_file_id
WHERE x.table_id = %(table)s AND x.begin_snapshot <= %(at)s AND (x.end_snapshot IS NULL OR x.end_snapshot > %(at)s)
  AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s);

-- name: deletes_of
-- the delete files of some data files at either of two snapshots
SELECT x.delete_file_id, x.data_file_id, x.path, x.path_is_relative, x.begin_snapshot, x.end_snapshot, x.delete_count,
       x.file_size_bytes, x.partial_max, x.encryption_key IS NOT NULL, x.format
FROM ducklake_delete_file x
WHERE x.table_id = %(table)s AND x.data_file_id = ANY(%(files)s)
  AND ((x.begin_snapshot <= %(a)s AND (x.end_snapshot IS NULL OR x.end_snapshot > %(a)s))
    OR (x.begin_snapshot <= %(b)s AND (x.end_snapshot IS NULL OR x.end_snapshot > %(b)s)));

-- name: mapping
-- how files of a mapping name the columns
SELECT column_id, source_name, target_field_id, parent_column, is_partition
FROM ducklake_name_mapping WHERE mapping_id = %(mapping)s ORDER BY column_id;

-- name: inlined_tables
-- where rows of a table live in the catalog, and since when with the columns of each. Where inlining was switched on after
-- the table was made, the version is one in which the table did not change, and is not listed: the last one before it holds
SELECT i.table_name, (SELECT v.begin_snapshot FROM ducklake_schema_versions v
                      WHERE v.table_id = i.table_id AND v.schema_version <= i.schema_version
                      ORDER BY v.schema_version DESC, v.begin_snapshot LIMIT 1)
FROM ducklake_inlined_data_tables i WHERE i.table_id = %(table)s ORDER BY i.schema_version;

-- name: inlined_columns
-- the columns of a table in the catalog, as PostgreSQL calls them, in their order; none where there is no such table
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(quote_ident(%(name)s)) AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- name: inlined_rows
-- inlined rows that are visible at exactly one of two snapshots
SELECT {columns} FROM {table}
WHERE (begin_snapshot <= %(a)s AND (end_snapshot IS NULL OR end_snapshot > %(a)s))
   <> (begin_snapshot <= %(b)s AND (end_snapshot IS NULL OR end_snapshot > %(b)s));

-- name: inlined_deletes
-- deletes from data files that live in the catalog
SELECT file_id, row_id, begin_snapshot FROM {table} WHERE begin_snapshot <= %(up_to)s;

-- name: relation_exists
-- whether the catalog has this table
SELECT to_regclass(quote_ident(%(name)s)) IS NOT NULL;

-- name: options
-- the lake's options as they hold for a table: its own, its schema's, the lake's
SELECT key, value FROM ducklake_metadata
WHERE scope IS NULL OR (scope = 'schema' AND scope_id = %(schema)s) OR (scope = 'table' AND scope_id = %(table)s)
ORDER BY CASE WHEN scope IS NULL THEN 0 WHEN scope = 'schema' THEN 1 ELSE 2 END;

-- name: view_by_name
-- a view at a snapshot, by its name
SELECT v.view_id, s.schema_name, v.view_name, v.sql, coalesce(v.column_aliases, '')
FROM ducklake_view v JOIN ducklake_schema s USING (schema_id)
WHERE lower(s.schema_name COLLATE "C") = lower(%(schema)s::text COLLATE "C") AND lower(v.view_name COLLATE "C") = lower(%(name)s::text COLLATE "C")
  AND v.begin_snapshot <= %(at)s AND (v.end_snapshot IS NULL OR v.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s);

-- name: changes_since
-- what the commits of (a, b] say that they did; a commit that says nothing is there too
SELECT s.snapshot_id, c.changes_made FROM ducklake_snapshot s LEFT JOIN ducklake_snapshot_changes c USING (snapshot_id)
WHERE s.snapshot_id > %(a)s AND s.snapshot_id <= %(b)s;

-- name: schema_by_name
-- a schema at a snapshot, by its name
SELECT schema_id FROM ducklake_schema
WHERE lower(schema_name COLLATE "C") = lower(%(schema)s::text COLLATE "C")
  AND begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR end_snapshot > %(at)s);

-- name: snapshot_at
-- the newest snapshot that was there at a time
SELECT snapshot_id, snapshot_time, schema_version, next_file_id FROM ducklake_snapshot
WHERE snapshot_time <= %(time)s ORDER BY snapshot_time DESC, snapshot_id DESC LIMIT 1;

-- name: file_bounds
-- what the catalog knows of some columns of some data files
SELECT data_file_id, column_id, column_size_bytes, value_count, null_count, min_value, max_value, contains_nan, extra_stats
FROM ducklake_file_column_stats
WHERE table_id = %(table)s AND data_file_id = ANY(%(files)s) AND column_id = ANY(%(columns)s);
