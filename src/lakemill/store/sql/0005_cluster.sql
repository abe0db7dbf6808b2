-- More than one machine: how Spark was set for a refresh, on how many executors it ran, and how far one is that runs.
ALTER TABLE lakemill.refreshes
  ADD COLUMN spark_profile   text,                    -- NULL: the session's own settings
  ADD COLUMN spark_tasks     bigint,                  -- NULL, here and below: unknown
  ADD COLUMN spark_executors int,
  ADD COLUMN spilled_bytes   bigint;

CREATE TABLE lakemill.progress (
  refresh_id uuid PRIMARY KEY REFERENCES lakemill.refreshes ON DELETE CASCADE,
  told       text NOT NULL,
  told_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.progress IS 'How far refreshes are that take long; a row goes when its refresh ends.';

-- ---------------------------------------------------------------- for SQL tools: the new columns come last
CREATE OR REPLACE VIEW lakemill.dynamic_table_list AS
SELECT d.schema_name, d.table_name, d.state, d.state_reason, d.state_since,
       CASE WHEN n.target_lag IS NULL THEN 'DOWNSTREAM' ELSE n.target_lag::text END AS target_lag,
       n.refresh_mode, n.resolved_mode, n.mode_reason, n.scheduler, n.priority, n.comment, n.query,
       d.definition_version, d.table_id,
       v.b_hi AS data_snapshot, v.b_time AS data_time, v.t AS clock_time, v.commit_snapshot,
       r.action AS last_action, r.outcome AS last_outcome, r.reason AS last_reason,
       r.started_at AS last_started_at, r.ended_at AS last_ended_at, r.error_code AS last_error_code,
       r.error_text AS last_error_text, d.created_at, p.told AS progress
FROM lakemill.dynamic_tables d
JOIN lakemill.definitions n ON n.dynamic_id = d.dynamic_id AND n.version = d.definition_version
LEFT JOIN lakemill.frontiers f ON f.dynamic_id = d.dynamic_id
LEFT JOIN lakemill.versions v ON v.version_id = f.version_id
LEFT JOIN LATERAL (SELECT * FROM lakemill.refreshes r WHERE r.dynamic_id = d.dynamic_id
                   ORDER BY r.started_at DESC LIMIT 1) r ON true
LEFT JOIN lakemill.progress p ON p.refresh_id = r.refresh_id AND r.outcome = 'EXECUTING';
COMMENT ON COLUMN lakemill.dynamic_table_list.progress IS 'How far the refresh is that runs, where it takes long.';

CREATE OR REPLACE VIEW lakemill.refresh_history AS
SELECT r.schema_name, r.table_name, r.trigger, r.outcome, r.action, r.reason, r.remedy,
       r.a AS from_snapshot, r.b AS to_snapshot, r.t AS clock_time, r.commit_snapshot, r.started_at, r.ended_at,
       extract(epoch FROM r.ended_at - r.started_at) AS seconds,
       r.rows_in, r.rows_inserted, r.rows_deleted,
       1 - (r.rows_inserted + r.rows_deleted)::double precision / nullif(r.rows_recomputed, 0) AS dedup_ratio,
       r.records_read, r.bytes_read, r.bytes_written, r.spark_jobs, r.phases, r.error_code, r.error_text,
       r.definition_version, r.holder, r.refresh_id,
       (SELECT coalesce(json_agg(json_build_object('schema', s.schema_name, 'table', s.table_name, 'table_id', s.table_id,
                                                   'from_commit', s.commit_a, 'to_commit', s.commit_b, 'rows', s.rows_in)
                                 ORDER BY s.position), '[]')
        FROM lakemill.refresh_sources s WHERE s.refresh_id = r.refresh_id) AS sources,
       r.spark_profile, r.spark_tasks, r.spark_executors, r.spilled_bytes
FROM lakemill.refreshes r;
COMMENT ON COLUMN lakemill.refresh_history.spark_profile IS 'The profile that Spark had; NULL: settings fitted to what was read.';
COMMENT ON COLUMN lakemill.refresh_history.spark_tasks IS 'Spark tasks that it took.';
COMMENT ON COLUMN lakemill.refresh_history.spark_executors IS 'Executors that did them; 1 where Spark ran in the worker itself.';
COMMENT ON COLUMN lakemill.refresh_history.spilled_bytes IS 'Bytes that did not fit into memory and were put on disk meanwhile.';
