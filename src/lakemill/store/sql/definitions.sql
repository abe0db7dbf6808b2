-- Dynamic tables and their definitions: one row per table, one per version of what was declared, and what it reads.

-- name: insert_table
-- a new dynamic table; no row when the name is in use
INSERT INTO lakemill.dynamic_tables (schema_name, table_name, definition_version, state)
VALUES (%(schema)s, %(name)s, 1, %(state)s)
ON CONFLICT DO NOTHING RETURNING dynamic_id;

-- name: next_version
-- the definition changes, if it is still the one that was read; what failed may succeed now
WITH forgiven AS (DELETE FROM lakemill.failures WHERE dynamic_id = %(dynamic_id)s)
UPDATE lakemill.dynamic_tables SET definition_version = definition_version + 1
WHERE dynamic_id = %(dynamic_id)s AND definition_version = %(version)s
RETURNING definition_version;

-- name: insert_definition
-- what was declared
INSERT INTO lakemill.definitions (
  dynamic_id, version, query, target_lag, column_names, refresh_mode, strict, cardinality_threshold, initialize,
  scheduler, priority, spark_profile, dialect, partition_by, comment, resolved_query, resolved_mode, mode_reason,
  clocked, output_names, output_types)
VALUES (
  %(dynamic_id)s, %(version)s, %(query)s, %(target_lag)s, %(column_names)s::text[], %(refresh_mode)s, %(strict)s,
  %(cardinality_threshold)s, %(initialize)s, %(scheduler)s, %(priority)s, %(spark_profile)s, %(dialect)s,
  %(partition_by)s::text[], %(comment)s, %(resolved_query)s, %(resolved_mode)s, %(mode_reason)s, %(clocked)s,
  %(output_names)s::text[], %(output_types)s::text[]);

-- name: insert_source
-- what it reads
INSERT INTO lakemill.sources (
  dynamic_id, version, position, kind, schema_name, table_name, table_id, supplier_id, column_names)
VALUES (
  %(dynamic_id)s, %(version)s, %(position)s, %(kind)s, %(schema)s, %(name)s, %(table_id)s, %(supplier_id)s,
  %(column_names)s::text[]);

-- name: tables
-- dynamic tables with their current definition, or with that of a version: all, one by id, or one by name
SELECT d.dynamic_id, d.schema_name, d.table_name, n.version, d.state, d.state_reason, d.state_since, d.table_id,
       d.created_at, n.declared_at,
       n.query, n.target_lag, n.column_names, n.refresh_mode, n.strict, n.cardinality_threshold, n.initialize,
       n.scheduler, n.priority, n.spark_profile, n.dialect, n.partition_by, n.comment,
       n.resolved_query, n.resolved_mode, n.mode_reason, n.clocked, n.output_names, n.output_types, d.stale_since
FROM lakemill.dynamic_tables d JOIN lakemill.definitions n USING (dynamic_id)
WHERE n.version = coalesce(%(version)s::int, d.definition_version)
  AND (%(dynamic_id)s::bigint IS NULL OR d.dynamic_id = %(dynamic_id)s)
  AND (%(name)s::text IS NULL OR (lower(d.schema_name COLLATE "C") = lower(%(schema)s::text COLLATE "C")
                                  AND lower(d.table_name COLLATE "C") = lower(%(name)s::text COLLATE "C")))
  AND (%(like)s::text IS NULL OR d.table_name ILIKE %(like)s
       OR d.schema_name || '.' || d.table_name ILIKE %(like)s)
ORDER BY lower(d.schema_name COLLATE "C"), lower(d.table_name COLLATE "C");

-- name: unloaded
-- dynamic tables that hold nothing by their definition, and since when that is so
SELECT d.schema_name, d.table_name, CASE WHEN v.version_id IS NULL THEN d.created_at ELSE n.declared_at END
FROM lakemill.dynamic_tables d
JOIN lakemill.definitions n ON n.dynamic_id = d.dynamic_id AND n.version = d.definition_version
LEFT JOIN lakemill.frontiers r ON r.dynamic_id = d.dynamic_id
LEFT JOIN lakemill.versions v ON v.version_id = r.version_id
WHERE v.version_id IS NULL OR v.definition_version <> d.definition_version;

-- name: sources
-- what a version of a definition reads; a dynamic table has the name that it has now
SELECT s.kind, coalesce(u.schema_name, s.schema_name), coalesce(u.table_name, s.table_name), s.column_names,
       s.table_id, s.supplier_id, s.schema_name, s.table_name
FROM lakemill.sources s LEFT JOIN lakemill.dynamic_tables u ON u.dynamic_id = s.supplier_id
WHERE s.dynamic_id = %(dynamic_id)s AND s.version = %(version)s ORDER BY s.position;

-- name: nodes
-- all that the graph needs, in one query; views are expanded, so they are not in it
SELECT d.schema_name, d.table_name, n.target_lag, d.state IN ('ACTIVE', 'PENDING_INIT') AND n.scheduler,
       array_agg(coalesce(u.schema_name, s.schema_name) ORDER BY s.position) FILTER (WHERE s.kind <> 'VIEW'),
       array_agg(coalesce(u.table_name, s.table_name) ORDER BY s.position) FILTER (WHERE s.kind <> 'VIEW')
FROM lakemill.dynamic_tables d
JOIN lakemill.definitions n ON n.dynamic_id = d.dynamic_id AND n.version = d.definition_version
LEFT JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version
LEFT JOIN lakemill.dynamic_tables u ON u.dynamic_id = s.supplier_id
GROUP BY d.dynamic_id, n.target_lag, n.scheduler;

-- name: ancestors
-- the dynamic tables that its content comes from, suppliers before their consumers
WITH RECURSIVE above AS (
  SELECT s.supplier_id AS dynamic_id, 1 AS steps
  FROM lakemill.dynamic_tables d
  JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version
  WHERE d.dynamic_id = %(dynamic_id)s AND s.supplier_id IS NOT NULL
  UNION
  SELECT s.supplier_id, a.steps + 1
  FROM above a
  JOIN lakemill.dynamic_tables d ON d.dynamic_id = a.dynamic_id
  JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version
  WHERE s.supplier_id IS NOT NULL)
SELECT dynamic_id FROM above GROUP BY dynamic_id ORDER BY max(steps) DESC, dynamic_id;

-- name: set_state
-- a new state, and why, for those that are in one of these now (NULL: in any); whether it is another than before
WITH wanted AS (
  SELECT dynamic_id, state AS was, CASE WHEN %(state)s::text = 'ACTIVE' AND table_id IS NULL THEN 'PENDING_INIT'
                          ELSE %(state)s::text END AS state
  FROM lakemill.dynamic_tables
  WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]) AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[])))
UPDATE lakemill.dynamic_tables d
SET state = w.state, state_reason = %(reason)s,
    state_since = CASE WHEN w.was = w.state THEN d.state_since ELSE clock_timestamp() END
FROM wanted w WHERE d.dynamic_id = w.dynamic_id AND (w.was, d.state_reason) IS DISTINCT FROM (w.state, %(reason)s::text)
RETURNING d.dynamic_id, w.was <> w.state;

-- name: rename
-- a new name; those who read the table know it by its id
UPDATE lakemill.dynamic_tables SET schema_name = %(schema)s, table_name = %(name)s WHERE dynamic_id = %(dynamic_id)s;

-- name: reword
-- the same definition in other words: a table that it reads has a new name
UPDATE lakemill.definitions SET query = %(query)s, resolved_query = %(resolved_query)s
WHERE dynamic_id = %(dynamic_id)s AND version = %(version)s;

-- name: reword_source
-- what the query calls a supplier by now
UPDATE lakemill.sources SET schema_name = %(schema)s, table_name = %(name)s
WHERE dynamic_id = %(dynamic_id)s AND version = %(version)s AND supplier_id = %(supplier_id)s;

-- name: lock_tables
-- nobody changes these, and nobody can begin to read them, until the transaction ends
SELECT dynamic_id, definition_version, table_id FROM lakemill.dynamic_tables WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[])
ORDER BY dynamic_id FOR UPDATE;

-- name: lock_claims
-- nobody publishes these until the transaction ends
SELECT FROM lakemill.claims WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]) ORDER BY dynamic_id FOR UPDATE;

-- name: readers
-- dynamic tables, others than these, whose current definition reads one of these
SELECT DISTINCT d.schema_name, d.table_name
FROM lakemill.sources s
JOIN lakemill.dynamic_tables d ON d.dynamic_id = s.dynamic_id AND d.definition_version = s.version
WHERE s.supplier_id = ANY(%(dynamic_ids)s::bigint[]) AND d.dynamic_id <> ALL(%(dynamic_ids)s::bigint[])
ORDER BY 1, 2;

-- name: delete_sources
-- first, so that no row is both deleted with its own table and changed with its supplier
DELETE FROM lakemill.sources WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]);

-- name: delete_tables
-- with definitions, versions, frontiers and claims; the history stays
DELETE FROM lakemill.dynamic_tables WHERE dynamic_id = ANY(%(dynamic_ids)s::bigint[]);
