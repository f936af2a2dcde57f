-- guard
UPDATE core_locks SET fencing_token=core_locks.fencing_token
WHERE core_locks.lock_key = ?
RETURNING owner_token, attempt, fencing_token, expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS live;

-- fenced
UPDATE rows SET n=?
WHERE EXISTS (SELECT 1
FROM core_locks
WHERE core_locks.lock_key = ? AND core_locks.owner_token = ? AND core_locks.fencing_token = ? AND core_locks.attempt != '' AND core_locks.expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) = 1;
