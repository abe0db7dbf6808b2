-- A dynamic table that was left behind for longer than the retention holds no snapshots any more: it is STALE, whatever
-- else it is, until it has been loaded anew.
ALTER TABLE lakemill.dynamic_tables
  ADD COLUMN stale_since timestamptz;  -- NULL: its frontier holds what its next delta starts from

CREATE OR REPLACE VIEW lakemill.dynamic_table_list AS
SELECT d.schema_name, d.table_name, CASE WHEN d.stale_since IS NULL THEN d.state ELSE 'STALE' END AS state,
       CASE WHEN d.stale_since IS NULL THEN d.state_reason
            ELSE concat_ws('; ', 'its past is no longer kept, and it will be loaded anew',
                           nullif(d.state, 'ACTIVE'), d.state_reason) END AS state_reason,
       coalesce(d.stale_since, d.state_since) AS state_since,
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

ALTER TABLE lakemill.work
  ADD COLUMN traceparent text;  -- the trace that asked for it, as W3C writes it; NULL where nobody traces
