-- What every refresh did. A row is written when a refresh starts and again when it ends, or once for both.

-- name: save_refresh
-- the record as it is now, with what was read of each source; in one statement, because it is part of the publish
WITH saved AS (
  INSERT INTO lakemill.refreshes (
    refresh_id, dynamic_id, schema_name, table_name, definition_version, trigger, outcome, action, reason, remedy,
    a, b, t, commit_snapshot, holder, fence, started_at, ended_at, rows_in, rows_inserted, rows_deleted,
    rows_recomputed, records_read, bytes_read, bytes_written, spark_jobs, spark_profile, spark_tasks, spark_executors,
    spilled_bytes, phases, error_code, error_text)
  VALUES (
    %(refresh_id)s, %(dynamic_id)s, %(schema)s, %(name)s, %(definition_version)s, %(trigger)s, %(outcome)s,
    %(action)s, %(reason)s, %(remedy)s, %(a)s, %(b)s, %(t)s, %(commit)s, %(holder)s, %(fence)s, %(started_at)s,
    %(ended_at)s, %(rows_in)s, %(rows_inserted)s, %(rows_deleted)s, %(rows_recomputed)s, %(records_read)s,
    %(bytes_read)s, %(bytes_written)s, %(spark_jobs)s, %(spark_profile)s, %(spark_tasks)s, %(spark_executors)s,
    %(spilled_bytes)s, %(phases)s, %(error_code)s, %(error_text)s)
  ON CONFLICT (refresh_id) DO UPDATE SET
    definition_version = excluded.definition_version, outcome = excluded.outcome, action = excluded.action,
    reason = excluded.reason, remedy = excluded.remedy, a = excluded.a, b = excluded.b, t = excluded.t,
    commit_snapshot = excluded.commit_snapshot, holder = excluded.holder, fence = excluded.fence,
    ended_at = excluded.ended_at, rows_in = excluded.rows_in, rows_inserted = excluded.rows_inserted,
    rows_deleted = excluded.rows_deleted, rows_recomputed = excluded.rows_recomputed,
    records_read = excluded.records_read, bytes_read = excluded.bytes_read, bytes_written = excluded.bytes_written,
    spark_jobs = excluded.spark_jobs, spark_profile = excluded.spark_profile, spark_tasks = excluded.spark_tasks,
    spark_executors = excluded.spark_executors, spilled_bytes = excluded.spilled_bytes, phases = excluded.phases,
    error_code = excluded.error_code, error_text = excluded.error_text
  WHERE refreshes.outcome <> 'SUCCEEDED')
INSERT INTO lakemill.refresh_sources (
  refresh_id, position, schema_name, table_name, table_id, commit_a, commit_b, rows_in)
SELECT %(refresh_id)s, s.* FROM unnest(
  %(positions)s::int[], %(schemas)s::text[], %(names)s::text[], %(table_ids)s::bigint[], %(commits_a)s::bigint[],
  %(commits_b)s::bigint[], %(rows)s::bigint[]) AS s
ON CONFLICT (refresh_id, position) DO UPDATE SET
  schema_name = excluded.schema_name, table_name = excluded.table_name, table_id = excluded.table_id,
  commit_a = excluded.commit_a, commit_b = excluded.commit_b, rows_in = excluded.rows_in;

-- name: record
-- what is told of a refresh r
SELECT r.refresh_id, r.dynamic_id, r.schema_name, r.table_name, r.definition_version, r.trigger, r.started_at,
       r.outcome, r.action, r.reason, r.remedy, r.a, r.b, r.t, r.commit_snapshot, r.holder, r.fence, r.ended_at,
       r.rows_in, r.rows_inserted, r.rows_deleted, r.rows_recomputed, r.records_read, r.bytes_read, r.bytes_written,
       r.spark_jobs, r.spark_profile, r.spark_tasks, r.spark_executors, r.spilled_bytes, r.phases, r.error_code,
       r.error_text,
       (SELECT coalesce(json_agg(json_build_array(s.schema_name, s.table_name, s.table_id, s.commit_a, s.commit_b,
                                                  s.rows_in) ORDER BY s.position), '[]')
        FROM lakemill.refresh_sources s WHERE s.refresh_id = r.refresh_id);

-- name: history
-- refreshes of these tables, or of all, the newest first
{record}
FROM lakemill.refreshes r
WHERE (%(dynamic_ids)s::bigint[] IS NULL OR r.dynamic_id = ANY(%(dynamic_ids)s::bigint[]))
  AND (%(refresh_id)s::uuid IS NULL OR r.refresh_id = %(refresh_id)s)
  AND (%(before)s::timestamptz IS NULL OR r.started_at < %(before)s)
  AND (NOT %(worked)s OR r.action <> 'NO_DATA')
ORDER BY r.started_at DESC, r.refresh_id LIMIT %(most)s;

-- name: called
-- tables that had this name at one of their refreshes; those that were dropped, too
SELECT DISTINCT r.dynamic_id FROM lakemill.refreshes r
WHERE lower(r.schema_name COLLATE "C") = lower(%(schema)s::text COLLATE "C")
  AND lower(r.table_name COLLATE "C") = lower(%(name)s::text COLLATE "C");

-- name: last
-- the newest refresh of each of these tables
{record}
FROM unnest(%(dynamic_ids)s::bigint[]) AS w (dynamic_id)
CROSS JOIN LATERAL (SELECT * FROM lakemill.refreshes x WHERE x.dynamic_id = w.dynamic_id
                    ORDER BY x.started_at DESC, x.refresh_id LIMIT 1) r;

-- name: lock_refresh
-- waits for a publish that has this record in its hands
SELECT FROM lakemill.refreshes WHERE refresh_id = %(refresh_id)s FOR UPDATE;

-- name: failures
-- scheduled refreshes that failed since the last success or the last change of state; manual ones do not count
SELECT count(*) FROM lakemill.refreshes r JOIN lakemill.dynamic_tables d USING (dynamic_id)
WHERE r.dynamic_id = %(dynamic_id)s AND r.trigger = 'SCHEDULED' AND r.outcome = 'FAILED'
  AND r.started_at >= d.state_since
  AND r.started_at > coalesce((SELECT max(s.started_at) FROM lakemill.refreshes s
                               WHERE s.dynamic_id = r.dynamic_id AND s.outcome = 'SUCCEEDED'), '-infinity');

-- name: close_abandoned
-- refreshes whose worker has lost its claim can't end by themselves any more
UPDATE lakemill.refreshes r SET outcome = 'FAILED', ended_at = clock_timestamp(), error_code = %(code)s,
  error_text = 'the worker stopped, or was paused past its claim'
WHERE r.outcome = 'EXECUTING' AND NOT EXISTS (
  SELECT FROM lakemill.claims c
  WHERE c.dynamic_id = r.dynamic_id AND c.fence = r.fence AND c.expires_at > clock_timestamp())
RETURNING r.refresh_id;

-- name: forget_progress
-- what killed workers left
DELETE FROM lakemill.progress p USING lakemill.refreshes r
WHERE r.refresh_id = p.refresh_id AND r.outcome <> 'EXECUTING';

-- name: forget
-- old records; the newest of each table stays
DELETE FROM lakemill.refreshes r WHERE r.started_at < %(before)s AND EXISTS (
  SELECT FROM lakemill.refreshes n WHERE n.dynamic_id = r.dynamic_id AND n.started_at > r.started_at);

-- name: tell_progress
-- how far a refresh is that runs; apart from its record, which its publish holds
INSERT INTO lakemill.progress (refresh_id, told) VALUES (%(refresh_id)s, %(told)s)
ON CONFLICT (refresh_id) DO UPDATE SET told = excluded.told, told_at = clock_timestamp();

-- name: end_progress
-- it has ended
DELETE FROM lakemill.progress WHERE refresh_id = %(refresh_id)s;

-- name: progress
-- of refreshes that run, by table
SELECT r.dynamic_id, p.told FROM lakemill.progress p JOIN lakemill.refreshes r USING (refresh_id)
WHERE r.outcome = 'EXECUTING';
