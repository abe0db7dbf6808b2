-- Pins, recorded positions and the snapshots that expiry has chosen. Everything that asks "is this snapshot still mine to
-- use?" or "may it go?" first takes the lock. {catalog} is the schema of the DuckLake catalog.

-- name: lock
-- pinning, recording and condemning come one after the other; released with the transaction
SELECT pg_advisory_xact_lock(%(key)s);

-- name: usable
-- whether a snapshot is there and not about to go
SELECT EXISTS (SELECT FROM {catalog}.ducklake_snapshot WHERE snapshot_id = %(snapshot)s)
   AND NOT EXISTS (SELECT FROM lakemill.condemned WHERE snapshot_id = %(snapshot)s);

-- name: newest
-- the newest snapshot
SELECT max(snapshot_id) FROM {catalog}.ducklake_snapshot;

-- name: insert_pin
-- a snapshot that a reader needs. A fleeting one does not wait for the disk: others see it at once, and a crash that could
-- lose it ends the connection of whoever needs it
INSERT INTO lakemill.pins (pin_id, snapshot_id, holder, reason, expires_at)
SELECT %(pin_id)s, %(snapshot)s, %(holder)s, %(reason)s, clock_timestamp() + %(ttl)s
WHERE NOT %(fleeting)s OR set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING pin_id, snapshot_id, holder, reason, created_at, expires_at;

-- name: renew_pin
-- a reader that needs longer; a pin that has run out is no longer a promise and can't be renewed
UPDATE lakemill.pins SET expires_at = clock_timestamp() + %(ttl)s
WHERE pin_id = %(pin_id)s AND (expires_at IS NULL OR expires_at > clock_timestamp());

-- name: delete_pin
-- the reader is done
DELETE FROM lakemill.pins WHERE pin_id = %(pin_id)s;

-- name: let_pin_go
-- the same, of a pin that runs out by itself: no wait for the disk, for a crash could only bring it back for a while
DELETE FROM lakemill.pins WHERE pin_id = %(pin_id)s AND set_config('synchronous_commit', 'off', true) IS NOT NULL;

-- name: delete_pins_of
-- all of some readers
DELETE FROM lakemill.pins WHERE holder = ANY(%(holders)s::text[]);

-- name: delete_pins_run_out
-- pins whose time is over
DELETE FROM lakemill.pins WHERE expires_at <= clock_timestamp();

-- name: pins
-- every pin that holds
SELECT pin_id, snapshot_id, holder, reason, created_at, expires_at FROM lakemill.pins
WHERE expires_at IS NULL OR expires_at > clock_timestamp() ORDER BY snapshot_id, created_at;

-- name: record_position
-- a consumer has read the table up to this snapshot
INSERT INTO lakemill.positions (holder, table_id, snapshot_id) VALUES (%(holder)s, %(table)s, %(snapshot)s)
ON CONFLICT (holder, table_id) DO UPDATE SET snapshot_id = excluded.snapshot_id, recorded_at = clock_timestamp();

-- name: move_positions
-- up to where a consumer has read all its tables; others that it had a position on are no longer held
WITH gone AS (DELETE FROM lakemill.positions WHERE holder = %(holder)s AND table_id <> ALL(%(tables)s::bigint[]))
INSERT INTO lakemill.positions (holder, table_id, snapshot_id)
SELECT %(holder)s, p.* FROM unnest(%(tables)s::bigint[], %(snapshots)s::bigint[]) AS p
ON CONFLICT (holder, table_id) DO UPDATE SET snapshot_id = excluded.snapshot_id, recorded_at = clock_timestamp();

-- name: drop_positions
-- a consumer is gone, or no longer reads this table (NULL: any)
DELETE FROM lakemill.positions WHERE holder = %(holder)s AND (%(table)s::bigint IS NULL OR table_id = %(table)s);

-- name: positions
-- every position that was recorded at or after a time (NULL: ever). A kept point has some, too: on its dynamic tables where
-- they are read for it, on the base tables at its b
SELECT holder, table_id, snapshot_id, recorded_at FROM (
  SELECT holder, table_id, snapshot_id, recorded_at FROM lakemill.positions
  UNION ALL
  SELECT 'point:' || k.component, v.table_id, v.commit_snapshot, k.kept_at
  FROM lakemill.points k JOIN lakemill.versions v USING (version_id)
  UNION
  SELECT 'point:' || k.component, s.table_id, k.b, k.kept_at
  FROM lakemill.points k JOIN lakemill.versions v USING (version_id)
  JOIN lakemill.sources s ON s.dynamic_id = v.dynamic_id AND s.version = v.definition_version AND s.kind = 'TABLE') p
WHERE %(since)s::timestamptz IS NULL OR recorded_at >= %(since)s ORDER BY snapshot_id, holder, table_id;

-- name: condemn
-- these snapshots will go
INSERT INTO lakemill.condemned (snapshot_id) SELECT unnest(%(snapshots)s::bigint[]) ON CONFLICT DO NOTHING;

-- name: absolve
-- they are gone, or they stay after all
DELETE FROM lakemill.condemned WHERE snapshot_id = ANY(%(snapshots)s);

-- name: absolve_left
-- what an expiry that was killed left behind; its last transaction may take a moment to end
DELETE FROM lakemill.condemned c WHERE condemned_at < clock_timestamp() - interval '1 minute' OR NOT EXISTS (
  SELECT FROM {catalog}.ducklake_snapshot s WHERE s.snapshot_id = c.snapshot_id);

-- name: try_turn
-- only one expiry at a time; held by the connection, freed with it
SELECT pg_try_advisory_lock(%(key)s);

-- name: end_turn
-- the next one may
SELECT pg_advisory_unlock(%(key)s);

-- name: gone
-- snapshots that were expired and had not changed a table, as ranges
SELECT r.table_id, lower(g), upper(g) FROM lakemill.retained r, unnest(r.gone) g WHERE r.table_id = ANY(%(tables)s::bigint[]) ORDER BY 1, 2;

-- name: let_pass
-- these go, and had not changed a table, but for some; what is older than all that is left need not be known
WITH going AS (SELECT coalesce(range_agg(int8range(s, s + 1)), '{{}}') AS all_ FROM unnest(%(snapshots)s::bigint[]) AS s),
     changed AS (SELECT x.table_id, range_agg(int8range(x.s, x.s + 1)) AS some
                 FROM unnest(%(of)s::bigint[], %(changed)s::bigint[]) AS x (table_id, s) GROUP BY x.table_id)
INSERT INTO lakemill.retained AS r (table_id, gone)
SELECT t.table_id, g.all_ - coalesce(c.some, '{{}}')
FROM going g CROSS JOIN unnest(%(tables)s::bigint[]) AS t (table_id) LEFT JOIN changed c USING (table_id)
ON CONFLICT (table_id) DO UPDATE SET gone = (r.gone + excluded.gone) * int8multirange(int8range(
  (SELECT min(snapshot_id) FROM {catalog}.ducklake_snapshot), NULL));

-- name: forget_retained
-- tables that have no retention of their own any more
DELETE FROM lakemill.retained WHERE table_id <> ALL(%(tables)s::bigint[]);
