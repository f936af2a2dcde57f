-- session setup
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- session setup
SET time_zone = '+00:00', innodb_lock_wait_timeout = 1, lock_wait_timeout = 2, sql_notes = 0;

-- create
CREATE TABLE IF NOT EXISTS core_locks (
	lock_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL,
	owner_token VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL,
	attempt VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL,
	kind VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL,
	holder VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL,
	server_lock VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin NOT NULL,
	fencing_token BIGINT NOT NULL,
	acquired_at DATETIME(6) NOT NULL,
	expires_at DATETIME(6) NOT NULL,
	PRIMARY KEY (lock_key)
)ENGINE=InnoDB;

-- claim
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.attempt = '' OR l.expires_at <= SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = w.o, attempt = w.a, kind = 'lease', holder = w.h, server_lock = '', acquired_at = SYSDATE(6), fencing_token = (greatest(core_locks.fencing_token + 1, timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)) + 0 * last_insert_id(CASE WHEN (greatest(core_locks.fencing_token + 1, timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)) = timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)) THEN timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at) ELSE 1 END)), expires_at = timestampadd(MICROSECOND, w.t, core_locks.acquired_at);

-- claim, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.attempt = '' OR l.expires_at <= SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = w.o, attempt = w.a, kind = 'lease', holder = w.h, server_lock = '', acquired_at = SYSDATE(6), fencing_token = (greatest(core_locks.fencing_token + 1, timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)) + 0 * last_insert_id(CASE WHEN (greatest(core_locks.fencing_token + 1, timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)) = timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at)) THEN timestampdiff(MICROSECOND, '1970-01-01', core_locks.acquired_at) ELSE 1 END)), expires_at = timestampadd(MICROSECOND, w.t, core_locks.acquired_at);

-- insert
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT w.k, w.o, w.a, 'lease', w.h, '', timestampdiff(MICROSECOND, '1970-01-01', SYSDATE(6)) AS timestampdiff_1, SYSDATE(6), timestampadd(MICROSECOND, w.t, SYSDATE(6)) AS timestampadd_1
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]', h VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]')) AS w
WHERE NOT (EXISTS (SELECT l.lock_key
FROM core_locks AS l
WHERE l.lock_key = w.k
FOR UPDATE NOWAIT))
ORDER BY w.k
ON DUPLICATE KEY UPDATE lock_key = core_locks.lock_key;

-- won
SELECT STRAIGHT_JOIN l.lock_key, l.fencing_token, timestampdiff(MICROSECOND, '1970-01-01', l.expires_at) AS timestampdiff_1
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.attempt = w.a;

-- renew
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE expires_at = timestampadd(MICROSECOND, w.t, SYSDATE(6));

-- renew, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE expires_at = timestampadd(MICROSECOND, w.t, SYSDATE(6));

-- own
SELECT STRAIGHT_JOIN l.lock_key
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6);

-- release
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN concat('released:', w.a) ELSE core_locks.owner_token END, attempt = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN 'released' ELSE '' END, expires_at = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN timestampadd(MICROSECOND, w.t, core_locks.acquired_at) ELSE SYSDATE(6) END;

-- release, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN concat('released:', w.a) ELSE core_locks.owner_token END, attempt = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN 'released' ELSE '' END, expires_at = CASE WHEN (w.t > 0 AND timestampadd(MICROSECOND, w.t, core_locks.acquired_at) > SYSDATE(6)) THEN timestampadd(MICROSECOND, w.t, core_locks.acquired_at) ELSE SYSDATE(6) END;

-- release
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE attempt = '', expires_at = SYSDATE(6);

-- release, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE l.owner_token = w.o AND (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE attempt = '', expires_at = SYSDATE(6);

-- break
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]', o VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]', a VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[2]', t BIGINT PATH '$[3]')) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = w.o, attempt = '', expires_at = SYSDATE(6);

-- break, single
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT STRAIGHT_JOIN l.lock_key, l.owner_token, l.attempt, l.kind, l.holder, l.server_lock, l.fencing_token, l.acquired_at, l.expires_at
FROM (SELECT %s AS k, %s AS o, %s AS a, %s AS t, %s AS h) AS w INNER JOIN core_locks AS l FORCE INDEX (PRIMARY) ON l.lock_key = w.k
WHERE (w.a = '' OR l.attempt = w.a) AND l.attempt != '' AND l.expires_at > SYSDATE(6)
ORDER BY w.k
FOR UPDATE OF l SKIP LOCKED
ON DUPLICATE KEY UPDATE owner_token = w.o, attempt = '', expires_at = SYSDATE(6);

-- read
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > SYSDATE(6) AS held, SYSDATE(6) AS seen_at
FROM core_locks
WHERE core_locks.lock_key IN (SELECT w.k
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]')) AS w);

-- read, single
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > SYSDATE(6) AS held, SYSDATE(6) AS seen_at
FROM core_locks
WHERE core_locks.lock_key = %s;

-- list
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > SYSDATE(6) AS held, SYSDATE(6) AS seen_at
FROM core_locks
WHERE substr(core_locks.lock_key, 1, %s) = %s
ORDER BY core_locks.lock_key;

-- lockers
SELECT DISTINCT threads.processlist_id, threads.processlist_user, threads.processlist_command, timestampadd(SECOND, -threads.processlist_time, SYSDATE(6)) AS timestampadd_1
FROM performance_schema.threads AS threads INNER JOIN performance_schema.data_locks AS data_locks ON data_locks.thread_id = threads.thread_id
WHERE data_locks.object_schema = database() AND data_locks.object_name = %s AND data_locks.lock_type = 'RECORD' AND data_locks.lock_data = concat('''', replace(%s, '''', ''''''), '''');

-- stale
SELECT core_locks.lock_key
FROM core_locks
WHERE substr(core_locks.lock_key, 1, %s) = %s AND (core_locks.attempt = '' OR core_locks.expires_at <= SYSDATE(6)) AND core_locks.expires_at <= timestampadd(MICROSECOND, -%s, SYSDATE(6)) AND core_locks.fencing_token <= timestampdiff(MICROSECOND, '1970-01-01', SYSDATE(6)) - %s
ORDER BY core_locks.lock_key
 LIMIT 500
FOR UPDATE SKIP LOCKED;

-- remove
DELETE
FROM core_locks
WHERE core_locks.lock_key IN (SELECT w.k
FROM json_table(%s, '$[*]' COLUMNS (k VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]')) AS w) AND (core_locks.attempt = '' OR core_locks.expires_at <= SYSDATE(6)) AND core_locks.expires_at <= timestampadd(MICROSECOND, -%s, SYSDATE(6)) AND core_locks.fencing_token <= timestampdiff(MICROSECOND, '1970-01-01', SYSDATE(6)) - %s;
