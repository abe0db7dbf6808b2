-- The newest consistent point of each component of the DAG: which version of each of its tables. {catalog} is the schema of
-- the DuckLake catalog.

-- name: candidates
-- versions of these tables, by their present definitions, that a newer point could be made of, oldest first; what was
-- expired can't be read
SELECT v.dynamic_id, v.version_id, v.commit_snapshot, v.b_lo, v.b_hi, v.definition_version, v.table_id, v.t
FROM lakemill.versions v
JOIN lakemill.dynamic_tables d ON d.dynamic_id = v.dynamic_id AND d.definition_version = v.definition_version
LEFT JOIN lakemill.points p ON p.dynamic_id = v.dynamic_id
WHERE v.dynamic_id = ANY(%(dynamic_ids)s::bigint[]) AND v.b_hi >= coalesce(p.b, 0)
  AND EXISTS (SELECT FROM {catalog}.ducklake_snapshot s WHERE s.snapshot_id = v.commit_snapshot)
ORDER BY v.dynamic_id, v.version_id;

-- name: hold_tables
-- these tables stay until the transaction ends; without those that somebody is about to drop or rename. Before the lock of
-- pins, as everybody does who takes both
SELECT dynamic_id FROM lakemill.dynamic_tables WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]) FOR KEY SHARE SKIP LOCKED;

-- name: keep
-- points become these, each as a whole or not at all: where a snapshot of it is gone or about to go, a table was dropped, or
-- a newer one is kept, it stays as it was
WITH given AS (
  SELECT * FROM unnest(%(components)s::bigint[], %(dynamic_ids)s::bigint[], %(version_ids)s::bigint[], %(bs)s::bigint[],
                       %(ts)s::timestamptz[]) AS g (component, dynamic_id, version_id, b, t)),
usable AS (
  SELECT s.snapshot_id, s.snapshot_time FROM {catalog}.ducklake_snapshot s
  WHERE NOT EXISTS (SELECT FROM lakemill.condemned c WHERE c.snapshot_id = s.snapshot_id)),
whole AS (
  SELECT g.component FROM given g
  LEFT JOIN lakemill.versions v ON v.version_id = g.version_id AND g.b BETWEEN v.b_lo AND v.b_hi
  LEFT JOIN lakemill.points p ON p.dynamic_id = g.dynamic_id
  GROUP BY g.component
  HAVING bool_and(EXISTS (SELECT FROM usable u WHERE u.snapshot_id = g.b)
              AND EXISTS (SELECT FROM usable u WHERE u.snapshot_id = v.commit_snapshot)
              AND (p.b IS NULL OR p.b <= g.b)))
INSERT INTO lakemill.points AS p (dynamic_id, component, version_id, b, b_time, t)
SELECT g.dynamic_id, g.component, g.version_id, g.b, u.snapshot_time, g.t
FROM given g JOIN whole USING (component) JOIN usable u ON u.snapshot_id = g.b
ON CONFLICT (dynamic_id) DO UPDATE SET component = excluded.component, version_id = excluded.version_id, b = excluded.b,
  b_time = excluded.b_time, t = excluded.t, kept_at = clock_timestamp()
WHERE (p.component, p.version_id, p.b, p.t) IS DISTINCT FROM
      (excluded.component, excluded.version_id, excluded.b, excluded.t);

-- name: kept
-- every table of every point, by point
SELECT p.component, p.b, p.b_time, p.t, p.kept_at, d.schema_name, d.table_name, v.commit_snapshot
FROM lakemill.points p JOIN lakemill.dynamic_tables d USING (dynamic_id) JOIN lakemill.versions v USING (version_id)
ORDER BY p.component, p.b, lower(d.schema_name COLLATE "C"), lower(d.table_name COLLATE "C");

-- name: of_tables
-- what the points of these tables are right for
SELECT dynamic_id, b FROM lakemill.points WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]);

-- name: holders
-- the points of these tables, as consumers are called
SELECT DISTINCT 'point:' || component FROM lakemill.points WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]);

-- name: let_go
-- nobody keeps these points any more
DELETE FROM lakemill.points WHERE 'point:' || component = ANY(%(holders)s::text[]);
