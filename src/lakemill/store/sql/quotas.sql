-- Buckets that all API processes share, and queries at a time.

-- name: lock_bucket
-- its level, how long ago that was, and the moment of this look; new ones are full. Locked until the transaction ends
INSERT INTO lakemill.buckets AS b (subject, resource, level, at)
VALUES (%(subject)s, %(resource)s, %(burst)s, clock_timestamp())
ON CONFLICT (subject, resource) DO UPDATE SET at = b.at
RETURNING level, extract(epoch FROM clock_timestamp() - at)::double precision, clock_timestamp();

-- name: set_bucket
-- as it is left
UPDATE lakemill.buckets SET level = %(level)s, at = %(at)s WHERE subject = %(subject)s AND resource = %(resource)s;

-- name: lock_slots
-- who counts a subject's slots comes one after the other
SELECT pg_advisory_xact_lock(%(space)s, hashtext(%(subject)s));

-- name: take_slot
-- one more at a time, where there is room; those of processes that died run out
WITH gone AS (DELETE FROM lakemill.slots WHERE subject = %(subject)s AND expires_at <= clock_timestamp())
INSERT INTO lakemill.slots (slot_id, subject, expires_at)
SELECT %(slot_id)s, %(subject)s, clock_timestamp() + %(ttl)s
WHERE (SELECT count(*) FROM lakemill.slots WHERE subject = %(subject)s AND expires_at > clock_timestamp()) < %(most)s;

-- name: free_slots
-- these have ended
DELETE FROM lakemill.slots WHERE slot_id = ANY(%(slot_ids)s::uuid[]);

-- name: forget_buckets
-- those that nobody used for a day are full, as new ones are
DELETE FROM lakemill.buckets WHERE at < clock_timestamp() - interval '1 day';
