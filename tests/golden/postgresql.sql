-- create
CREATE TABLE IF NOT EXISTS core_locks (
	lock_key VARCHAR(255) COLLATE "C" NOT NULL,
	owner_token VARCHAR(128) COLLATE "C" NOT NULL,
	attempt VARCHAR(32) COLLATE "C" NOT NULL,
	kind VARCHAR(16) COLLATE "C" NOT NULL,
	holder VARCHAR(255) COLLATE "C" NOT NULL,
	server_lock VARCHAR(255) COLLATE "C" NOT NULL,
	fencing_token BIGINT NOT NULL,
	acquired_at TIMESTAMP WITH TIME ZONE NOT NULL,
	expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
	PRIMARY KEY (lock_key)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000);

-- claim
WITH settings AS MATERIALIZED
(SELECT set_config('lock_timeout', '200ms', true) AS lock_timeout),
want AS MATERIALIZED
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h) JOIN settings ON settings.lock_timeout IS NOT NULL),
free AS
(SELECT core_locks.lock_key AS lock_key
FROM core_locks JOIN want ON core_locks.lock_key = want.k
WHERE core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp()
ORDER BY core_locks.lock_key
FOR UPDATE OF core_locks SKIP LOCKED),
taken AS
(UPDATE core_locks SET owner_token=want.o, attempt=want.a, kind='lease', holder=want.h, server_lock='', fencing_token=greatest(core_locks.fencing_token + 1, CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT)), acquired_at=clock_timestamp(), expires_at=(clock_timestamp() + want.t * interval '1 microsecond')
FROM free, want
WHERE core_locks.lock_key = free.lock_key AND free.lock_key = want.k
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at),
made AS
(INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT want.k AS k, want.o AS o, want.a AS a, 'lease', want.h AS h, '', CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT) AS anon_1, clock_timestamp() AS clock_timestamp_1, clock_timestamp() + want.t * interval '1 microsecond' AS anon_2
FROM want
WHERE NOT (EXISTS (SELECT *
FROM core_locks AS present
WHERE present.lock_key = want.k))
ORDER BY want.k
ON CONFLICT (lock_key) DO NOTHING
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at),
won AS
(SELECT taken.lock_key AS lock_key, taken.fencing_token AS fencing_token, taken.expires_at AS expires_at
FROM taken UNION ALL SELECT made.lock_key AS lock_key, made.fencing_token AS fencing_token, made.expires_at AS expires_at
FROM made)
 SELECT want.k, CASE WHEN (won.lock_key IS NOT NULL) THEN 'done' WHEN (now.attempt = want.a) THEN 'done' WHEN (now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'refused' ELSE 'skipped' END AS verdict, coalesce(won.fencing_token, now.fencing_token) AS fencing_token, coalesce(won.expires_at, now.expires_at) AS expires_at
FROM want
LEFT OUTER JOIN won ON won.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- renew
WITH want AS MATERIALIZED
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h)),
mine AS
(SELECT core_locks.lock_key AS lock_key
FROM core_locks JOIN want ON core_locks.lock_key = want.k
WHERE core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
ORDER BY core_locks.lock_key
FOR NO KEY UPDATE OF core_locks SKIP LOCKED),
changed AS
(UPDATE core_locks SET expires_at=(clock_timestamp() + want.t * interval '1 microsecond')
FROM mine, want
WHERE core_locks.lock_key = mine.lock_key AND mine.lock_key = want.k
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN (now.owner_token = want.o AND (want.a = '' OR now.attempt = want.a) AND now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- release
WITH settings AS MATERIALIZED
(SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit),
want AS MATERIALIZED
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h) JOIN settings ON settings.synchronous_commit IS NOT NULL),
mine AS
(SELECT core_locks.lock_key AS lock_key
FROM core_locks JOIN want ON core_locks.lock_key = want.k
WHERE core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
ORDER BY core_locks.lock_key
FOR NO KEY UPDATE OF core_locks SKIP LOCKED),
changed AS
(UPDATE core_locks SET attempt='', expires_at=clock_timestamp()
FROM mine, want
WHERE core_locks.lock_key = mine.lock_key AND mine.lock_key = want.k
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN (now.owner_token = want.o AND (want.a = '' OR now.attempt = want.a) AND now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- break
WITH want AS MATERIALIZED
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h)),
mine AS
(SELECT core_locks.lock_key AS lock_key
FROM core_locks JOIN want ON core_locks.lock_key = want.k
WHERE core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
ORDER BY core_locks.lock_key
FOR UPDATE OF core_locks SKIP LOCKED),
changed AS
(UPDATE core_locks SET owner_token=want.o, attempt='', expires_at=clock_timestamp()
FROM mine, want
WHERE core_locks.lock_key = mine.lock_key AND mine.lock_key = want.k
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN (now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- read
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp() AS held, clock_timestamp() AS seen_at
FROM core_locks
WHERE core_locks.lock_key = any(CAST(%(keys)s::TEXT[] AS TEXT[]));

-- list
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp() AS held, clock_timestamp() AS seen_at
FROM core_locks
WHERE substr(core_locks.lock_key, %(substr_1)s::INTEGER, %(length)s::INTEGER) = %(prefix)s::VARCHAR
ORDER BY core_locks.lock_key;
