-- guard
SELECT l.owner_token, l.attempt, l.fencing_token, l.expires_at > UTC_TIMESTAMP(6) AS live, (SELECT plain.fencing_token
FROM core_locks AS plain
WHERE plain.lock_key = l.lock_key) AS snapshot, @@autocommit AS autocommit
FROM core_locks AS l
WHERE l.lock_key = %s
LOCK IN SHARE MODE;

-- fenced
UPDATE `rows` SET n=%s
WHERE EXISTS (SELECT 1
FROM core_locks
WHERE core_locks.lock_key = %s AND core_locks.owner_token = %s AND core_locks.fencing_token = %s AND core_locks.attempt != '' AND core_locks.expires_at > UTC_TIMESTAMP(6)
LOCK IN SHARE MODE) = 1;

-- guard in a cluster
SELECT l.owner_token, l.attempt, l.fencing_token, l.expires_at > UTC_TIMESTAMP(6) AS live, (SELECT plain.fencing_token
FROM core_locks AS plain
WHERE plain.lock_key = l.lock_key) AS snapshot, @@autocommit AS autocommit
FROM core_locks AS l
WHERE l.lock_key = %s
FOR UPDATE;

-- mark in a cluster
UPDATE core_locks SET acquired_at=timestampadd(MICROSECOND, 1 - 2 * mod(microsecond(core_locks.acquired_at), 2), core_locks.acquired_at)
WHERE core_locks.lock_key = %s;
