-- name: partition_keys
-- the live partition spec's keys in order
SELECT i.partition_id, c.column_id, c.transform
FROM ducklake_partition_info i JOIN ducklake_partition_column c USING (partition_id, table_id)
WHERE i.table_id = %(table_id)s AND i.end_snapshot IS NULL ORDER BY c.partition_key_index;

-- name: row_size
-- bytes that a row has taken on average, to aim at the target file size
SELECT file_size_bytes::float8 / nullif(record_count, 0) FROM ducklake_table_stats WHERE table_id = %(table_id)s;
