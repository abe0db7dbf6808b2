-- name: superseded
-- tables of inlined rows whose columns are no longer the newest of their table, and whether they are this table's
SELECT i.table_name, i.table_id = %(table)s
FROM ducklake_inlined_data_tables i
WHERE i.schema_version < (SELECT max(n.schema_version) FROM ducklake_inlined_data_tables n WHERE n.table_id = i.table_id)
  AND to_regclass(quote_ident(i.table_name)) IS NOT NULL
ORDER BY i.table_id, i.schema_version;

-- name: has_rows
-- whether a table of inlined rows holds any
SELECT EXISTS (SELECT FROM {table});

-- name: lock_timeout
-- how long a statement of this transaction waits for a lock
SELECT set_config('lock_timeout', %(milliseconds)s, true);

-- name: lock_to_drop
-- the lock that a DROP TABLE needs
LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE;

-- name: holders
-- who holds a lock on a table, for people
SELECT a.pid, coalesce(nullif(a.application_name, ''), a.backend_type), coalesce(a.state, 'at work')
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.relation = to_regclass(quote_ident(%(name)s))
GROUP BY 1, 2, 3 ORDER BY 1;
