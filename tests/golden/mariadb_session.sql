-- wait_timeout
SET SESSION wait_timeout = 15;

-- identity
SELECT CONNECTION_ID(), DATABASE(), CONCAT(@@hostname, ':', @@port, ':', @@server_id), (SELECT UNIX_TIMESTAMP() - variable_value
FROM information_schema.global_status
WHERE variable_name = 'Uptime'), @@GLOBAL.read_only, (SELECT variable_value
FROM information_schema.global_status
WHERE variable_name = 'wsrep_ready'), NULL, (SELECT host
FROM information_schema.processlist
WHERE id = CONNECTION_ID());

-- begin
BEGIN;

-- rollback
ROLLBACK;

-- take
SELECT w.n, get_lock(w.n, 0) AS answer
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', n VARCHAR(192) CHARACTER SET utf8mb4 PATH '$[5]', l VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]')) AS w;

-- claim
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', n VARCHAR(192) CHARACTER SET utf8mb4 PATH '$[5]', l VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.attempt = '' OR l.expires_at <= SYSDATE(6) OR l.server_lock = w.l
ORDER BY w.k
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = w.o, attempt = w.a, kind = 'session', holder = w.h, server_lock = w.l, acquired_at = SYSDATE(6), fencing_token = greatest(core_locks.fencing_token + 1, timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)), expires_at = timestampadd(MICROSECOND, w.t, core_locks.acquired_at)
RETURNING core_locks.lock_key, core_locks.fencing_token, timestampdiff(MICROSECOND, '1970-01-01', core_locks.expires_at) AS timestampdiff_1;

-- claim, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h, %s AS n, %s AS l) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.attempt = '' OR l.expires_at <= SYSDATE(6) OR l.server_lock = w.l
ORDER BY w.k
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = w.o, attempt = w.a, kind = 'session', holder = w.h, server_lock = w.l, acquired_at = SYSDATE(6), fencing_token = greatest(core_locks.fencing_token + 1, timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)), expires_at = timestampadd(MICROSECOND, w.t, core_locks.acquired_at)
RETURNING core_locks.lock_key, core_locks.fencing_token, timestampdiff(MICROSECOND, '1970-01-01', core_locks.expires_at) AS timestampdiff_1;

-- insert
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT w.k, w.o, w.a, 'session', w.h, w.l, timestampdiff(MICROSECOND, '1970-01-01', SYSDATE(6)) AS timestampdiff_1, SYSDATE(6), timestampadd(MICROSECOND, w.t, SYSDATE(6)) AS timestampadd_1
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', n VARCHAR(192) CHARACTER SET utf8mb4 PATH '$[5]', l VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]')) AS w
ORDER BY w.k
ON DUPLICATE KEY UPDATE lock_key = core_locks.lock_key;

-- revive
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', n VARCHAR(192) CHARACTER SET utf8mb4 PATH '$[5]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND l.attempt = w.a AND l.attempt != '' AND is_used_lock(w.n) = connection_id()
ORDER BY w.k
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE expires_at = timestampadd(MICROSECOND, w.t, SYSDATE(6))
RETURNING core_locks.lock_key, core_locks.fencing_token, timestampdiff(MICROSECOND, '1970-01-01', core_locks.expires_at) AS timestampdiff_1;

-- revive, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h, %s AS n, %s AS l) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND l.attempt = w.a AND l.attempt != '' AND is_used_lock(w.n) = connection_id()
ORDER BY w.k
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE expires_at = timestampadd(MICROSECOND, w.t, SYSDATE(6))
RETURNING core_locks.lock_key, core_locks.fencing_token, timestampdiff(MICROSECOND, '1970-01-01', core_locks.expires_at) AS timestampdiff_1;

-- beat
SELECT w.n
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', n VARCHAR(192) CHARACTER SET utf8mb4 PATH '$[5]', l VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]')) AS w
WHERE is_used_lock(w.n) = connection_id();

-- release
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', n VARCHAR(192) CHARACTER SET utf8mb4 PATH '$[5]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN concat('released:', w.a) ELSE core_locks.owner_token END, attempt = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN 'released' ELSE '' END, expires_at = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN timestampadd(MICROSECOND, w.t, core_locks.acquired_at) ELSE SYSDATE(6) END
RETURNING core_locks.lock_key;

-- release, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h, %s AS n, %s AS l) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN concat('released:', w.a) ELSE core_locks.owner_token END, attempt = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN 'released' ELSE '' END, expires_at = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN timestampadd(MICROSECOND, w.t, core_locks.acquired_at) ELSE SYSDATE(6) END
RETURNING core_locks.lock_key;

-- unlock
SELECT w.n, release_lock(w.n) AS answer
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', n VARCHAR(192) CHARACTER SET utf8mb4 PATH '$[5]', l VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]')) AS w;
