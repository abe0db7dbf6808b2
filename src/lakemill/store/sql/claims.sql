-- Claims: who may work on a dynamic table. A row stays when a claim is over, so that its number only grows.

-- name: claim
-- the table is free, or its claim has run out: ours, with a new number; no row when somebody else has it
INSERT INTO lakemill.claims AS c (dynamic_id, fence, holder, expires_at)
SELECT dynamic_id, 1, %(holder)s, clock_timestamp() + %(ttl)s FROM lakemill.dynamic_tables
WHERE dynamic_id = %(dynamic_id)s
ON CONFLICT (dynamic_id) DO UPDATE SET fence = c.fence + 1, holder = excluded.holder, claimed_at = clock_timestamp(),
  expires_at = excluded.expires_at
WHERE c.expires_at <= clock_timestamp()
RETURNING fence, expires_at;

-- name: renew
-- it takes longer; a claim that has run out may be somebody else's plan already
UPDATE lakemill.claims SET expires_at = clock_timestamp() + %(ttl)s
WHERE dynamic_id = %(dynamic_id)s AND fence = %(fence)s AND expires_at > clock_timestamp()
RETURNING expires_at;

-- name: holder
-- who has the table now, and since when
SELECT holder, claimed_at FROM lakemill.claims WHERE dynamic_id = %(dynamic_id)s AND expires_at > clock_timestamp();

-- name: held
-- all claims that hold
SELECT dynamic_id, holder FROM lakemill.claims WHERE expires_at > clock_timestamp();

-- name: release
-- done; nothing happens when it was lost
UPDATE lakemill.claims SET expires_at = '-infinity' WHERE dynamic_id = %(dynamic_id)s AND fence = %(fence)s;

-- name: take_away
-- of one who is gone
UPDATE lakemill.claims SET expires_at = '-infinity' WHERE dynamic_id = %(dynamic_id)s AND holder = %(holder)s;

-- name: take_away_all
-- of those who are about to go
UPDATE lakemill.claims SET expires_at = '-infinity' WHERE holder = ANY(%(holders)s::text[]) AND expires_at > clock_timestamp();

-- name: lock_claim
-- the claim as it is, held until the transaction ends
SELECT fence, holder, expires_at > clock_timestamp() FROM lakemill.claims WHERE dynamic_id = %(dynamic_id)s FOR UPDATE;
