-- Ids of publishes: one row each, written by the publish itself or by whoever settles it.

-- name: forget_publishes
-- rows that nobody can ask for any more; those that came after a transaction began which is still open, and which they may
-- keep from committing, stay
DELETE FROM lakemill.publishes
WHERE published_at < clock_timestamp() - %(age)s
  AND published_at < coalesce((SELECT min(xact_start) FROM pg_stat_activity
                               WHERE datname = current_database() AND pid <> pg_backend_pid()), 'infinity');
