-- What was done, by whom.

-- name: record
-- one action that has ended
INSERT INTO lakemill.audit (who, tenant, action, about, outcome, code, trace_id, sql, tables, snapshot, rows, seconds)
VALUES (%(who)s, %(tenant)s, %(action)s, %(about)s, %(outcome)s, %(code)s, %(trace_id)s, %(sql)s, %(tables)s::text[],
        %(snapshot)s, %(rows)s, %(seconds)s);

-- name: entries
-- the newest first, below an id; of a tenant and of one caller or action where they are given
SELECT audit_id, at, who, tenant, action, about, outcome, code, trace_id, sql, tables, snapshot, rows, seconds
FROM lakemill.audit
WHERE (%(before)s::bigint IS NULL OR audit_id < %(before)s) AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
  AND (%(who)s::text IS NULL OR who = %(who)s) AND (%(action)s::text IS NULL OR action = %(action)s)
ORDER BY audit_id DESC LIMIT %(limit)s;

-- name: forget
-- older than anybody wants to know
DELETE FROM lakemill.audit WHERE at < %(before)s;
