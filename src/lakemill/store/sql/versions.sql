-- Versions of dynamic tables, and the frontier: the newest one with what it read. Written inside the publish.

-- name: move_frontier
-- a new version becomes the current one, with what it read, if definition and frontier are as they were planned with and
-- b does not decrease; one statement, because it runs under the commit lock; no row when something is not so
WITH was AS (
  SELECT f.version_id FROM lakemill.frontiers f WHERE f.dynamic_id = %(dynamic_id)s FOR UPDATE),
held AS (
  UPDATE lakemill.dynamic_tables
  SET table_id = %(table_id)s,
      -- the same content under another definition or name is as stale as it was
      stale_since = CASE WHEN %(b_lo)s > (SELECT coalesce(max(b_hi), -1) FROM lakemill.versions
                                          WHERE dynamic_id = %(dynamic_id)s) THEN NULL ELSE stale_since END,
      state = CASE WHEN state = 'PENDING_INIT' THEN 'ACTIVE' ELSE state END,
      state_reason = CASE WHEN state = 'PENDING_INIT' THEN NULL ELSE state_reason END,
      state_since = CASE WHEN state = 'PENDING_INIT' THEN clock_timestamp() ELSE state_since END
  WHERE dynamic_id = %(dynamic_id)s AND definition_version = %(definition_version)s
    AND (SELECT version_id FROM was) IS NOT DISTINCT FROM %(expected)s::bigint
    AND %(b_lo)s >= (SELECT coalesce(max(b_hi), 0) FROM lakemill.versions WHERE dynamic_id = %(dynamic_id)s)
  RETURNING dynamic_id),
added AS (
  INSERT INTO lakemill.versions (dynamic_id, commit_snapshot, b_lo, b_hi, b_time, t, definition_version, table_id)
  SELECT dynamic_id, %(commit)s, %(b_lo)s, %(b_hi)s, %(b_time)s, %(t)s, %(definition_version)s, %(table_id)s FROM held
  RETURNING version_id),
moved AS (
  INSERT INTO lakemill.frontiers (dynamic_id, version_id) SELECT %(dynamic_id)s, version_id FROM added
  ON CONFLICT (dynamic_id) DO UPDATE SET version_id = excluded.version_id, moved_at = clock_timestamp()),
read AS (
  INSERT INTO lakemill.frontier_sources (dynamic_id, table_id, columns_version, commit_snapshot, row_count, state)
  SELECT %(dynamic_id)s, s.* FROM unnest(
    %(table_ids)s::bigint[], %(columns_versions)s::bigint[], %(commits)s::bigint[], %(row_counts)s::bigint[],
    %(states)s::int[]) AS s
  WHERE EXISTS (SELECT FROM added)
  ON CONFLICT (dynamic_id, table_id) DO UPDATE SET columns_version = excluded.columns_version,
    commit_snapshot = excluded.commit_snapshot, row_count = excluded.row_count, state = excluded.state),
left_out AS (
  DELETE FROM lakemill.frontier_sources
  WHERE dynamic_id = %(dynamic_id)s AND table_id <> ALL(%(table_ids)s::bigint[]) AND EXISTS (SELECT FROM added))
SELECT version_id FROM added;

-- name: why_not
-- which of the conditions of move_frontier does not hold
SELECT d.definition_version, f.version_id, (SELECT max(b_hi) FROM lakemill.versions v WHERE v.dynamic_id = d.dynamic_id)
FROM lakemill.dynamic_tables d LEFT JOIN lakemill.frontiers f USING (dynamic_id) WHERE d.dynamic_id = %(dynamic_id)s;

-- name: raise_b_hi
-- current versions that are right for later data snapshots too; never those that depend on the clock
UPDATE lakemill.versions v SET b_hi = %(b)s, b_time = %(b_time)s
FROM lakemill.frontiers f
WHERE v.version_id = ANY(%(version_ids)s::bigint[]) AND f.version_id = v.version_id AND v.t IS NULL
  AND v.b_hi < %(b)s
RETURNING v.version_id;

-- name: lock_stale
-- of these tables those that nobody holds or is about to publish; whoever is, waits for the lock that we have
SELECT d.dynamic_id FROM lakemill.dynamic_tables d
WHERE 'dynamic:' || d.dynamic_id = ANY(%(holders)s::text[])
  AND NOT EXISTS (SELECT FROM lakemill.claims c WHERE c.dynamic_id = d.dynamic_id AND c.expires_at > clock_timestamp())
FOR UPDATE OF d SKIP LOCKED;

-- name: let_go
-- they hold nothing any more, and are loaded anew when somebody brings them further
WITH stale AS (
  UPDATE lakemill.dynamic_tables SET stale_since = coalesce(stale_since, clock_timestamp())
  WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]) RETURNING dynamic_id)
DELETE FROM lakemill.positions p USING stale WHERE p.holder = 'dynamic:' || stale.dynamic_id;

-- name: advance_sources
-- tables that did not change: the next delta starts later
UPDATE lakemill.frontier_sources SET commit_snapshot = %(b)s
WHERE dynamic_id = %(dynamic_id)s AND table_id = ANY(%(table_ids)s::bigint[]);

-- name: version_at
-- the newest version that is right at a data snapshot (and at a time, where that matters)
SELECT version_id, commit_snapshot, b_lo, b_hi, definition_version, table_id, t FROM lakemill.versions
WHERE dynamic_id = %(dynamic_id)s AND %(b)s BETWEEN b_lo AND b_hi AND (t IS NULL OR t = %(t)s::timestamptz)
ORDER BY version_id DESC LIMIT 1;

-- name: version_visible
-- the newest version whose commit is visible at a snapshot of the catalog
SELECT version_id, commit_snapshot, b_lo, b_hi, definition_version, table_id, t FROM lakemill.versions
WHERE dynamic_id = %(dynamic_id)s AND commit_snapshot <= %(snapshot)s
ORDER BY commit_snapshot DESC, version_id DESC LIMIT 1;

-- name: versions
-- all versions of these tables, oldest first (NULL: of all tables)
SELECT dynamic_id, version_id, commit_snapshot, b_lo, b_hi, definition_version, table_id, t FROM lakemill.versions
WHERE %(dynamic_ids)s::bigint[] IS NULL OR dynamic_id = ANY(%(dynamic_ids)s::bigint[])
ORDER BY dynamic_id, version_id;

-- name: seen
-- when versions of a table became visible since a time, and the last one before it, oldest first
SELECT added_at, b_lo, t FROM lakemill.versions
WHERE dynamic_id = %(dynamic_id)s AND version_id >= coalesce(
  (SELECT max(version_id) FROM lakemill.versions WHERE dynamic_id = %(dynamic_id)s AND added_at < %(since)s), 0)
ORDER BY version_id;

-- name: frontiers
-- the current versions of these tables
SELECT f.dynamic_id, v.version_id, v.commit_snapshot, v.b_lo, v.b_hi, v.definition_version, v.table_id, v.t, v.b_time
FROM lakemill.frontiers f JOIN lakemill.versions v USING (version_id) WHERE f.dynamic_id = ANY(%(dynamic_ids)s::bigint[]);

-- name: frontier_sources
-- what they read, and the states that they left
SELECT dynamic_id, state IS NOT NULL, table_id, columns_version, commit_snapshot, row_count FROM lakemill.frontier_sources
WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]) ORDER BY dynamic_id, state, table_id;

-- name: forget_versions
-- versions whose commit nobody can read any more; the current ones stay
DELETE FROM lakemill.versions v WHERE v.commit_snapshot < %(oldest)s
  AND NOT EXISTS (SELECT FROM lakemill.frontiers f WHERE f.version_id = v.version_id)
  -- the content of a commit is visible until the next commit of the table
  AND EXISTS (SELECT FROM lakemill.versions n WHERE n.dynamic_id = v.dynamic_id
              AND n.commit_snapshot > v.commit_snapshot AND n.commit_snapshot <= %(oldest)s);

-- name: lock_idle
-- of these versions those that are current, and whose table nobody holds or is about to publish; so until the transaction
-- ends. A table without a claim was never worked on
SELECT f.version_id FROM lakemill.frontiers f JOIN lakemill.claims c USING (dynamic_id)
WHERE f.version_id = ANY(%(version_ids)s::bigint[]) AND c.expires_at <= clock_timestamp()
FOR UPDATE OF c SKIP LOCKED;

-- name: raise_idle
-- current versions of tables that nothing happened to, with the positions that their next deltas start from
WITH raised AS (
  UPDATE lakemill.versions v SET b_hi = %(b)s, b_time = %(b_time)s
  FROM lakemill.frontiers f JOIN lakemill.dynamic_tables d USING (dynamic_id)
  WHERE f.version_id = v.version_id AND v.version_id = ANY(%(version_ids)s::bigint[]) AND v.t IS NULL AND v.b_hi < %(b)s
    AND v.definition_version = d.definition_version AND d.stale_since IS NULL
  RETURNING v.dynamic_id, v.definition_version),
moved AS (
  UPDATE lakemill.frontier_sources r SET commit_snapshot = %(b)s
  FROM raised JOIN lakemill.sources s
    ON s.dynamic_id = raised.dynamic_id AND s.version = raised.definition_version AND s.kind = 'TABLE'
  WHERE r.dynamic_id = s.dynamic_id AND r.table_id = s.table_id AND r.state IS NULL
  RETURNING r.dynamic_id, r.table_id),
held AS (
  UPDATE lakemill.positions p SET snapshot_id = %(b)s, recorded_at = clock_timestamp()
  FROM moved WHERE p.holder = 'dynamic:' || moved.dynamic_id AND p.table_id = moved.table_id)
SELECT dynamic_id FROM raised;
