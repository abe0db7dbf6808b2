-- Tenants and API keys.

-- name: insert_tenant
-- a tenant, unless there is one of this name
INSERT INTO lakemill.tenants (tenant, schemas, requests, rows, bytes, queries)
VALUES (%(tenant)s, %(schemas)s, %(requests)s, %(rows)s, %(bytes)s, %(queries)s)
ON CONFLICT DO NOTHING
RETURNING tenant, schemas, requests, rows, bytes, queries, created_at;

-- name: update_tenant
-- all that can change about it
UPDATE lakemill.tenants
SET schemas = %(schemas)s, requests = %(requests)s, rows = %(rows)s, bytes = %(bytes)s, queries = %(queries)s
WHERE tenant = %(tenant)s
RETURNING tenant, schemas, requests, rows, bytes, queries, created_at;

-- name: tenants
-- all of them, or one
SELECT tenant, schemas, requests, rows, bytes, queries, created_at FROM lakemill.tenants
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY tenant;

-- name: lock_tenant
-- one, for its change
SELECT tenant, schemas, requests, rows, bytes, queries, created_at FROM lakemill.tenants
WHERE tenant = %(tenant)s FOR UPDATE;

-- name: insert_key
-- a new key
INSERT INTO lakemill.keys
  (key_id, digest, name, tenant, roles, tables, requests, rows, bytes, queries, created_by, expires_at)
VALUES (%(key_id)s, %(digest)s, %(name)s, %(tenant)s, %(roles)s, %(tables)s, %(requests)s, %(rows)s, %(bytes)s,
        %(queries)s, %(created_by)s, %(expires_at)s)
RETURNING key_id, name, tenant, roles, tables, requests, rows, bytes, queries, created_by, created_at, expires_at,
          revoked_at, last_used_at;

-- name: keys
-- keys of a tenant (NULL: of all), the newest first
SELECT key_id, name, tenant, roles, tables, requests, rows, bytes, queries, created_by, created_at, expires_at,
       revoked_at, last_used_at
FROM lakemill.keys WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY created_at DESC, key_id;

-- name: find_key
-- all that decides about a request; whether its time is over by the database's clock
SELECT k.key_id, k.name, k.tenant, k.roles, k.tables, k.requests, k.rows, k.bytes, k.queries, k.created_by,
       k.created_at, k.expires_at, k.revoked_at, k.last_used_at, k.digest,
       coalesce(k.expires_at <= clock_timestamp(), false),
       t.schemas, t.requests, t.rows, t.bytes, t.queries
FROM lakemill.keys k LEFT JOIN lakemill.tenants t USING (tenant) WHERE k.key_id = %(key_id)s;

-- name: revoke_key
-- it ends now; one that has ended stays as it was
UPDATE lakemill.keys SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE key_id = %(key_id)s AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
RETURNING key_id, name, tenant, roles, tables, requests, rows, bytes, queries, created_by, created_at, expires_at,
          revoked_at, last_used_at;

-- name: touch_key
-- it was used; a minute's precision saves a write a request
UPDATE lakemill.keys SET last_used_at = clock_timestamp()
WHERE key_id = %(key_id)s AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute');

-- name: any_key
-- whether somebody has made a key yet
SELECT EXISTS (SELECT FROM lakemill.keys);
