-- Views that join what we keep with the catalog. Made where the catalog is: its schema is on the search_path, in front.

-- name: dynamic_table_status
-- how far each dynamic table is behind, and how large it is; compaction and the like are no change
CREATE OR REPLACE VIEW lakemill.dynamic_table_status AS
WITH RECURSIVE reached AS (
  SELECT d.dynamic_id, s.table_id, s.supplier_id
  FROM lakemill.dynamic_tables d
  JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version
  UNION
  SELECT r.dynamic_id, s.table_id, s.supplier_id
  FROM reached r JOIN lakemill.dynamic_tables d ON d.dynamic_id = r.supplier_id
  JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version)
SELECT d.schema_name, d.table_name, v.b_hi AS data_snapshot, c.snapshot_id AS changed_by, c.snapshot_time AS changed_at,
       greatest(clock_timestamp() - least(c.snapshot_time, v.t, clock_timestamp()), interval '0') AS lag,
       f.files, f.bytes,
       CASE WHEN NOT EXISTS (SELECT FROM ducklake_inlined_data_tables i WHERE i.table_id = d.table_id)
            THEN f.rows - x.rows END AS rows
FROM lakemill.dynamic_tables d
JOIN lakemill.frontiers r ON r.dynamic_id = d.dynamic_id
JOIN lakemill.versions v ON v.version_id = r.version_id
CROSS JOIN LATERAL (
  SELECT count(*) AS files, coalesce(sum(file_size_bytes), 0)::bigint AS bytes, coalesce(sum(record_count), 0)::bigint AS rows
  FROM ducklake_data_file f WHERE f.table_id = d.table_id AND f.end_snapshot IS NULL) f
CROSS JOIN LATERAL (
  SELECT coalesce(sum(x.delete_count), 0)::bigint AS rows
  FROM ducklake_delete_file x JOIN ducklake_data_file o ON o.data_file_id = x.data_file_id AND o.end_snapshot IS NULL
  WHERE x.table_id = d.table_id AND x.end_snapshot IS NULL) x
LEFT JOIN LATERAL (
  SELECT p.snapshot_id, p.snapshot_time
  FROM ducklake_snapshot p LEFT JOIN ducklake_snapshot_changes m USING (snapshot_id)
  WHERE p.snapshot_id > v.b_hi AND (m.changes_made IS NULL OR EXISTS (
    SELECT FROM regexp_matches(m.changes_made,
      '(?:^|,)(?:inserted_into_table|inlined_insert|deleted_from_table|inlined_delete|altered_table|dropped_table):(\d+)', 'g') told
    JOIN reached a ON a.table_id = told[1]::bigint WHERE a.dynamic_id = d.dynamic_id AND a.supplier_id IS NULL))
  ORDER BY p.snapshot_id LIMIT 1) c ON true;
COMMENT ON VIEW lakemill.dynamic_table_status IS 'Every dynamic table that was loaded: how far it is behind, and how large it is.';
COMMENT ON COLUMN lakemill.dynamic_table_status.schema_name IS 'Schema of the table.';
COMMENT ON COLUMN lakemill.dynamic_table_status.table_name IS 'Name of the table.';
COMMENT ON COLUMN lakemill.dynamic_table_status.data_snapshot IS 'The newest snapshot at which its content equals its query.';
COMMENT ON COLUMN lakemill.dynamic_table_status.changed_by IS 'The first commit after it that changed a table which it reaches; NULL where there is none.';
COMMENT ON COLUMN lakemill.dynamic_table_status.changed_at IS 'When that was.';
COMMENT ON COLUMN lakemill.dynamic_table_status.lag IS 'How long it has been behind; zero where nothing changed, at least the age of now() where the query has it.';
COMMENT ON COLUMN lakemill.dynamic_table_status.files IS 'Data files.';
COMMENT ON COLUMN lakemill.dynamic_table_status.bytes IS 'Bytes of its data files.';
COMMENT ON COLUMN lakemill.dynamic_table_status.rows IS 'Rows; NULL where the catalog itself holds some of them.';
