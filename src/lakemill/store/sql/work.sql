-- Due work: one row each, taken by a worker until it is done or the worker is gone.

-- name: add
-- due work, unless it is there already; then that one
WITH added AS (
  INSERT INTO lakemill.work (kind, subject, dynamic_id, after, b, t, manual, priority, reason, traceparent)
  VALUES (%(kind)s, %(subject)s, %(dynamic_id)s, %(after)s::bigint[], %(b)s, %(t)s, false, %(priority)s, %(reason)s, %(traceparent)s)
  ON CONFLICT (kind, subject) DO NOTHING RETURNING work_id)
SELECT work_id, true FROM added
UNION ALL
SELECT work_id, false FROM lakemill.work WHERE kind = %(kind)s AND subject = %(subject)s LIMIT 1;

-- name: ask
-- somebody asked for it: it goes first and to this b, also where it was due already; no row where somebody is at it
INSERT INTO lakemill.work AS w (kind, subject, dynamic_id, after, b, t, manual, priority, reason, traceparent)
VALUES (%(kind)s, %(subject)s, %(dynamic_id)s, %(after)s::bigint[], %(b)s, %(t)s, true, %(priority)s, %(reason)s, %(traceparent)s)
ON CONFLICT (kind, subject) DO UPDATE SET after = excluded.after, b = excluded.b, t = excluded.t, manual = true,
  priority = excluded.priority, reason = excluded.reason, traceparent = excluded.traceparent
WHERE w.worker IS NULL
RETURNING work_id;

-- name: rounds
-- the scheduler has taken these tables up; NULL: their round did not come to them
UPDATE lakemill.dynamic_tables SET round_at = %(at)s WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]);

-- name: take
-- the next piece of work that can be done now: nothing before it is left, and nobody works on its table. Upkeep comes
-- last; but where it has waited for too long, and none is done or was lately, one goes before the scheduled refreshes
WITH next AS (
  SELECT w.work_id FROM lakemill.work w
  WHERE w.kind = ANY(%(kinds)s::text[]) AND (w.worker IS NULL OR w.expires_at <= clock_timestamp())
    AND NOT EXISTS (SELECT FROM lakemill.work f WHERE f.work_id = ANY(w.after))
    AND NOT EXISTS (SELECT FROM lakemill.work o WHERE o.dynamic_id = w.dynamic_id AND o.work_id <> w.work_id AND o.expires_at > clock_timestamp())
    AND NOT EXISTS (SELECT FROM lakemill.claims c WHERE c.dynamic_id = w.dynamic_id AND c.expires_at > clock_timestamp())
  ORDER BY w.manual DESC, w.kind = 'upkeep'
      AND greatest(w.added_at, (SELECT max(t.at) FROM lakemill.tended t)) <= clock_timestamp() - %(patience)s::interval
      AND NOT EXISTS (SELECT FROM lakemill.work u WHERE u.kind = 'upkeep' AND u.expires_at > clock_timestamp()) DESC,
    w.priority DESC, w.added_at, w.work_id
  LIMIT 1 FOR UPDATE OF w SKIP LOCKED)
UPDATE lakemill.work w SET worker = %(worker)s, taken_at = clock_timestamp(), expires_at = clock_timestamp() + %(ttl)s
FROM next WHERE w.work_id = next.work_id
RETURNING w.work_id, w.kind, w.subject, w.dynamic_id, w.b, w.t, w.manual, w.priority, w.reason, w.added_at, w.traceparent;

-- name: extend
-- the worker lives, and is at these still; those that it has not lost
WITH seen AS (
  INSERT INTO lakemill.workers (worker, slots, kinds) VALUES (%(worker)s, %(slots)s, %(kinds)s::text[])
  ON CONFLICT (worker) DO UPDATE SET seen_at = clock_timestamp(), slots = excluded.slots, kinds = excluded.kinds)
UPDATE lakemill.work SET expires_at = clock_timestamp() + %(ttl)s
WHERE work_id = ANY(%(work_ids)s::bigint[]) AND worker = %(worker)s AND expires_at > clock_timestamp()
RETURNING work_id;

-- name: has
-- nobody else was given it meanwhile
SELECT FROM lakemill.work WHERE work_id = %(work_id)s AND worker = %(worker)s FOR UPDATE;

-- name: done
-- it is done, or will be planned anew
DELETE FROM lakemill.work WHERE work_id = ANY(%(work_ids)s::bigint[]) AND (worker = %(worker)s OR worker IS NULL);

-- name: withdraw
-- nobody shall do it any more, unless somebody does it already
DELETE FROM lakemill.work WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]) AND worker IS NULL;

-- name: hand_back
-- somebody else may do it
UPDATE lakemill.work SET worker = NULL, taken_at = NULL, expires_at = NULL
WHERE worker = %(worker)s AND (%(work_ids)s::bigint[] IS NULL OR work_id = ANY(%(work_ids)s::bigint[]));

-- name: waiting_for
-- what waits for this work, directly and through others, in order
WITH RECURSIVE later AS (
  SELECT w.work_id, w.dynamic_id, w.manual FROM lakemill.work w WHERE %(work_id)s = ANY(w.after)
  UNION
  SELECT w.work_id, w.dynamic_id, w.manual FROM later l JOIN lakemill.work w ON l.work_id = ANY(w.after))
SELECT work_id, dynamic_id, manual FROM later ORDER BY work_id;

-- name: leave
-- a worker that has stopped
DELETE FROM lakemill.workers WHERE worker = %(worker)s;

-- name: holders
-- who has taken work, or said that they live
SELECT worker FROM lakemill.workers UNION SELECT worker FROM lakemill.work WHERE worker IS NOT NULL;

-- name: workers
-- who said that they live, and how long ago; those that nobody heard of for a day are forgotten
WITH forgotten AS (DELETE FROM lakemill.workers WHERE seen_at < clock_timestamp() - interval '1 day')
SELECT worker, slots, kinds, started_at, seen_at, clock_timestamp() - seen_at FROM lakemill.workers ORDER BY worker;

-- name: depth
-- how much is due, by kind, and for how long the oldest has waited
SELECT kind, count(*) FILTER (WHERE free), coalesce(extract(epoch FROM clock_timestamp() - min(added_at) FILTER (WHERE free)), 0)
FROM (SELECT kind, added_at, worker IS NULL OR expires_at <= clock_timestamp() AS free FROM lakemill.work) w GROUP BY kind;

-- name: failed
-- one more scheduled refresh failed; how many in a row now
INSERT INTO lakemill.failures AS f (dynamic_id, count, failed_at, b, code, retry)
SELECT dynamic_id, 1, clock_timestamp(), %(b)s, %(code)s, %(retry)s FROM lakemill.dynamic_tables
WHERE dynamic_id = %(dynamic_id)s
ON CONFLICT (dynamic_id) DO UPDATE SET
  -- its own failures, and those of a part that does not answer, are counted apart
  count = CASE WHEN (f.retry IN ('never', 're-plan') OR f.code = ANY(%(blamed)s::text[]))
                  = (excluded.retry IN ('never', 're-plan') OR excluded.code = ANY(%(blamed)s::text[]))
               THEN f.count + 1 ELSE 1 END,
  failed_at = excluded.failed_at, b = excluded.b,
  code = excluded.code, retry = excluded.retry
RETURNING count, failed_at;

-- name: most_lost
-- how often in a row another table failed in this way, at most
SELECT coalesce(max(count), 0) FROM lakemill.failures WHERE code = %(code)s AND dynamic_id <> %(dynamic_id)s;

-- name: recovered
-- they failed no more, or start anew
DELETE FROM lakemill.failures WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]);

-- name: took
-- how long a refresh took: the next one is expected to take as long as the last few
UPDATE lakemill.dynamic_tables
SET expected = CASE WHEN expected = '0' THEN %(took)s::interval ELSE expected * 0.7 + %(took)s::interval * 0.3 END
WHERE dynamic_id = %(dynamic_id)s;

-- name: standings
-- all that the scheduler needs to know of every dynamic table: one query, so that it is of one moment, whose newest snapshot
-- every row names. A lake without dynamic tables has one row, of none
WITH head AS (
  SELECT snapshot_id, snapshot_time FROM {catalog}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1),
reads AS (
  SELECT s.* FROM lakemill.dynamic_tables d
  JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version),
read AS (  -- by table: its base tables, the names of all that it reads, the current b_lo of suppliers that it did not read
  SELECT s.dynamic_id, array_agg(s.table_id) FILTER (WHERE s.kind = 'TABLE') AS bases,
         array_agg(coalesce(u.schema_name, s.schema_name)) FILTER (WHERE s.kind <> 'VIEW') AS schemas,
         array_agg(coalesce(u.table_name, s.table_name)) FILTER (WHERE s.kind <> 'VIEW') AS names,
         max(w.b_lo) FILTER (WHERE r.commit_snapshot IS DISTINCT FROM w.commit_snapshot) AS moved
  FROM reads s LEFT JOIN lakemill.dynamic_tables u ON u.dynamic_id = s.supplier_id
  LEFT JOIN lakemill.frontiers g ON g.dynamic_id = s.supplier_id
  LEFT JOIN lakemill.versions w ON w.version_id = g.version_id
  LEFT JOIN lakemill.frontier_sources r ON r.dynamic_id = s.dynamic_id AND r.table_id = w.table_id AND r.state IS NULL
  GROUP BY s.dynamic_id),
renamed AS (  -- sources whose name is no longer that of the table or view that was read, and since when
  SELECT s.dynamic_id, max(x.end_snapshot) AS since
  FROM reads s JOIN LATERAL (
    SELECT t.end_snapshot FROM {catalog}.ducklake_table t JOIN {catalog}.ducklake_schema p USING (schema_id)
    WHERE s.kind = 'TABLE' AND t.table_id = s.table_id AND lower(t.table_name COLLATE "C") = lower(s.table_name COLLATE "C")
      AND lower(p.schema_name COLLATE "C") = lower(s.schema_name COLLATE "C")
    UNION ALL
    SELECT w.end_snapshot FROM {catalog}.ducklake_view w WHERE s.kind = 'VIEW' AND w.view_id = s.table_id) x ON true
  WHERE s.kind <> 'DYNAMIC'
  GROUP BY s.dynamic_id, s.position HAVING bool_and(x.end_snapshot IS NOT NULL)),
replaced AS (SELECT dynamic_id, min(since) AS since FROM renamed GROUP BY dynamic_id),
suppliers AS (SELECT DISTINCT supplier_id FROM reads WHERE supplier_id IS NOT NULL)
SELECT h.snapshot_id, h.snapshot_time,
       d.dynamic_id, d.schema_name, d.table_name, d.state IN ('ACTIVE', 'PENDING_INIT') AND n.scheduler,
       n.target_lag, n.priority, n.clocked, d.round_at, d.expected,
       v.version_id, v.commit_snapshot, v.b_lo, v.b_hi, v.definition_version, v.table_id, v.t,
       d.definition_version,
       EXISTS (SELECT FROM lakemill.work w WHERE w.kind = 'refresh' AND w.dynamic_id = d.dynamic_id),
       f.count, f.failed_at, f.b, f.retry,
       s.bases, s.schemas, s.names, s.moved, d.stale_since IS NOT NULL,
       g.since, EXISTS (SELECT FROM {catalog}.ducklake_snapshot p WHERE p.snapshot_id = v.commit_snapshot), e.numbers, e.times
FROM head h
LEFT JOIN (lakemill.dynamic_tables d
           JOIN lakemill.definitions n ON n.dynamic_id = d.dynamic_id AND n.version = d.definition_version) ON true
LEFT JOIN lakemill.frontiers r ON r.dynamic_id = d.dynamic_id
LEFT JOIN lakemill.versions v ON v.version_id = r.version_id
LEFT JOIN lakemill.failures f ON f.dynamic_id = d.dynamic_id
LEFT JOIN read s ON s.dynamic_id = d.dynamic_id
LEFT JOIN replaced g ON g.dynamic_id = d.dynamic_id
LEFT JOIN suppliers u ON u.supplier_id = d.dynamic_id
LEFT JOIN LATERAL (  -- earlier versions of those that others read; one whose commit was expired can't be read
  SELECT array_agg(ARRAY[x.commit_snapshot, x.b_lo, x.b_hi, x.definition_version, x.table_id]) AS numbers,
         array_agg(x.t) AS times
  FROM (SELECT * FROM lakemill.versions o
        WHERE o.dynamic_id = u.supplier_id AND o.version_id < v.version_id
        ORDER BY o.version_id DESC LIMIT %(most)s) x
  WHERE x.definition_version = v.definition_version
    AND EXISTS (SELECT FROM {catalog}.ducklake_snapshot q WHERE q.snapshot_id = x.commit_snapshot)) e ON true;

-- name: kept
-- those that were not expired
SELECT snapshot_id FROM {catalog}.ducklake_snapshot WHERE snapshot_id = ANY(%(snapshots)s::bigint[]);

-- name: times
-- when these were committed; of one that is not there any more, the next
SELECT w.snapshot, (SELECT p.snapshot_time FROM {catalog}.ducklake_snapshot p WHERE p.snapshot_id >= w.snapshot
                    ORDER BY p.snapshot_id LIMIT 1)
FROM unnest(%(snapshots)s::bigint[]) AS w (snapshot);
