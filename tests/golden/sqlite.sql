-- session setup
PRAGMA busy_timeout = 8;

-- create
CREATE TABLE IF NOT EXISTS core_locks (
	lock_key VARCHAR(255) NOT NULL,
	owner_token VARCHAR(128) NOT NULL,
	attempt VARCHAR(32) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	holder VARCHAR(255) NOT NULL,
	server_lock VARCHAR(255) NOT NULL,
	fencing_token BIGINT NOT NULL,
	acquired_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (lock_key)
);

-- claim
INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT w.k, w.o, w.a, 'lease', w.h, '', CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS anon_1, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS anon_2, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 + w.t AS anon_3
FROM (SELECT json_extract(anon_4.value, '$[0]') AS k, json_extract(anon_4.value, '$[1]') AS o, json_extract(anon_4.value, '$[2]') AS a, json_extract(anon_4.value, '$[3]') AS t, json_extract(anon_4.value, '$[4]') AS h
FROM json_each(?) AS anon_4) AS w
WHERE 1 = 1
ON CONFLICT (lock_key) DO UPDATE SET owner_token = excluded.owner_token, attempt = excluded.attempt, kind = excluded.kind, holder = excluded.holder, server_lock = excluded.server_lock, fencing_token = max(core_locks.fencing_token + 1, excluded.fencing_token), acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
WHERE core_locks.attempt = '' OR core_locks.expires_at <= CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
RETURNING lock_key, fencing_token, expires_at;

-- renew
WITH want AS
(SELECT json_extract(anon_1.value, '$[0]') AS k, json_extract(anon_1.value, '$[1]') AS o, json_extract(anon_1.value, '$[2]') AS a, json_extract(anon_1.value, '$[3]') AS t, json_extract(anon_1.value, '$[4]') AS h
FROM json_each(?) AS anon_1)
 UPDATE core_locks SET expires_at=(CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 + want.t)
FROM want
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
RETURNING lock_key, fencing_token, expires_at;

-- release
WITH want AS
(SELECT json_extract(anon_1.value, '$[0]') AS k, json_extract(anon_1.value, '$[1]') AS o, json_extract(anon_1.value, '$[2]') AS a, json_extract(anon_1.value, '$[3]') AS t, json_extract(anon_1.value, '$[4]') AS h
FROM json_each(?) AS anon_1)
 UPDATE core_locks SET owner_token=CASE WHEN (want.t > 0 AND core_locks.acquired_at + want.t > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) THEN 'released:' || want.a ELSE core_locks.owner_token END, attempt=CASE WHEN (want.t > 0 AND core_locks.acquired_at + want.t > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) THEN 'released' ELSE '' END, expires_at=CASE WHEN (want.t > 0 AND core_locks.acquired_at + want.t > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) THEN core_locks.acquired_at + want.t ELSE CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 END
FROM want
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
RETURNING lock_key, fencing_token, expires_at;

-- break
WITH want AS
(SELECT json_extract(anon_1.value, '$[0]') AS k, json_extract(anon_1.value, '$[1]') AS o, json_extract(anon_1.value, '$[2]') AS a, json_extract(anon_1.value, '$[3]') AS t, json_extract(anon_1.value, '$[4]') AS h
FROM json_each(?) AS anon_1)
 UPDATE core_locks SET owner_token=want.o, attempt='', expires_at=(CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)
FROM want
WHERE core_locks.lock_key = want.k AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000
RETURNING lock_key, fencing_token, expires_at;

-- read
WITH want AS
(SELECT json_extract(anon_1.value, '$[0]') AS k, json_extract(anon_1.value, '$[1]') AS o, json_extract(anon_1.value, '$[2]') AS a, json_extract(anon_1.value, '$[3]') AS t, json_extract(anon_1.value, '$[4]') AS h
FROM json_each(?) AS anon_1)
 SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS held, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS seen_at
FROM core_locks
WHERE core_locks.lock_key IN (SELECT want.k
FROM want);

-- read, single
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS held, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS seen_at
FROM core_locks
WHERE core_locks.lock_key = ?;

-- list
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS held, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS seen_at
FROM core_locks
WHERE substr(core_locks.lock_key, 1, ?) = ?
ORDER BY core_locks.lock_key;

-- stale
SELECT core_locks.lock_key
FROM core_locks
WHERE substr(core_locks.lock_key, 1, ?) = ? AND (core_locks.attempt = '' OR core_locks.expires_at <= CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) AND core_locks.expires_at <= (CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) - ? AND core_locks.fencing_token <= (CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) - ?
ORDER BY core_locks.lock_key
 LIMIT 500 OFFSET ?;

-- remove
WITH want AS
(SELECT json_extract(anon_1.value, '$[0]') AS k, json_extract(anon_1.value, '$[1]') AS o, json_extract(anon_1.value, '$[2]') AS a, json_extract(anon_1.value, '$[3]') AS t, json_extract(anon_1.value, '$[4]') AS h
FROM json_each(?) AS anon_1)
 DELETE
FROM core_locks
WHERE core_locks.lock_key IN (SELECT want.k
FROM want) AND (core_locks.attempt = '' OR core_locks.expires_at <= CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) AND core_locks.expires_at <= (CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) - ? AND core_locks.fencing_token <= (CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000) - ?
RETURNING lock_key;
