-- What upkeep the service did, and when it last looked for some.

-- name: looked
-- when each of these policies was looked at; one that is new counts from now
WITH new AS (
  INSERT INTO lakemill.looked (policy, looked_at) SELECT unnest(%(policies)s::text[]), %(now)s
  ON CONFLICT (policy) DO NOTHING RETURNING policy, looked_at)
SELECT policy, looked_at FROM new UNION ALL
SELECT policy, looked_at FROM lakemill.looked WHERE policy = ANY(%(policies)s::text[]);

-- name: last_looks
-- when each policy was looked at
SELECT policy, looked_at FROM lakemill.looked;

-- name: look
-- they are looked at now
INSERT INTO lakemill.looked (policy, looked_at) SELECT unnest(%(policies)s::text[]), %(now)s
ON CONFLICT (policy) DO UPDATE SET looked_at = excluded.looked_at;

-- name: remember
-- how a job on a table went
INSERT INTO lakemill.tended AS t (job, table_id, outcome, reason, mark, count)
VALUES (%(job)s, %(table_id)s, %(outcome)s, %(reason)s, %(mark)s, CASE WHEN %(outcome)s = 'failed' THEN 1 ELSE 0 END)
ON CONFLICT (job, table_id) DO UPDATE SET at = clock_timestamp(), outcome = excluded.outcome, reason = excluded.reason,
  mark = excluded.mark, count = CASE WHEN excluded.count = 0 THEN 0 ELSE t.count + 1 END;

-- name: tended
-- how the last ones went
SELECT job, table_id, at, outcome, reason, mark, count FROM lakemill.tended;

-- name: forget
-- of tables that are no more
DELETE FROM lakemill.tended WHERE table_id <> 0 AND table_id <> ALL(%(tables)s::bigint[]);
