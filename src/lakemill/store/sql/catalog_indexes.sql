-- name: data_file_begin
-- files of a table by the snapshot that added them
CREATE INDEX IF NOT EXISTS lakemill_data_file_begin ON ducklake_data_file (table_id, begin_snapshot);

-- name: data_file_end
-- files of a table by the snapshot that ended them
CREATE INDEX IF NOT EXISTS lakemill_data_file_end ON ducklake_data_file (table_id, end_snapshot);

-- name: data_file_partial
-- merged files: the few with rows of several snapshots
CREATE INDEX IF NOT EXISTS lakemill_data_file_partial ON ducklake_data_file (table_id, partial_max)
WHERE partial_max IS NOT NULL;

-- name: delete_file_data
-- delete files of a data file
CREATE INDEX IF NOT EXISTS lakemill_delete_file_data ON ducklake_delete_file (table_id, data_file_id);

-- name: delete_file_end
-- delete files of a table by the snapshot that ended them
CREATE INDEX IF NOT EXISTS lakemill_delete_file_end ON ducklake_delete_file (table_id, end_snapshot);

-- name: file_column_stats_column
-- one column's statistics over a table's files: pruning
CREATE INDEX IF NOT EXISTS lakemill_file_column_stats_column ON ducklake_file_column_stats (table_id, column_id);

-- name: file_column_stats_file
-- one file's statistics: compaction and cleanup
CREATE INDEX IF NOT EXISTS lakemill_file_column_stats_file ON ducklake_file_column_stats (data_file_id);

-- name: file_partition_value_file
-- one file's partition values
CREATE INDEX IF NOT EXISTS lakemill_file_partition_value_file ON ducklake_file_partition_value (data_file_id);

-- name: file_partition_value_table
-- partition values over a table's files: pruning
CREATE INDEX IF NOT EXISTS lakemill_file_partition_value_table ON ducklake_file_partition_value (table_id, partition_key_index);

-- name: file_variant_stats_file
-- one file's variants
CREATE INDEX IF NOT EXISTS lakemill_file_variant_stats_file ON ducklake_file_variant_stats (data_file_id);

-- name: table_column_stats_table
-- a table's own statistics
CREATE INDEX IF NOT EXISTS lakemill_table_column_stats_table ON ducklake_table_column_stats (table_id, column_id);

-- name: table_stats_table
-- a table's totals
CREATE INDEX IF NOT EXISTS lakemill_table_stats_table ON ducklake_table_stats (table_id);

-- name: column_table
-- a table's columns
CREATE INDEX IF NOT EXISTS lakemill_column_table ON ducklake_column (table_id);

-- name: table_id
-- a table by its id
CREATE INDEX IF NOT EXISTS lakemill_table_id ON ducklake_table (table_id);

-- name: name_mapping_id
-- a mapping's names
CREATE INDEX IF NOT EXISTS lakemill_name_mapping_id ON ducklake_name_mapping (mapping_id);

-- name: snapshot_next_file
-- the commit that wrote a file: the first whose next_file_id exceeds its id
CREATE INDEX IF NOT EXISTS lakemill_snapshot_next_file ON ducklake_snapshot (next_file_id, snapshot_id);
