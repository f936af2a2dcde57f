-- idle_session_timeout
SET idle_session_timeout = 15000;

-- statement_timeout
SET statement_timeout = 15000;

-- client_connection_check_interval
SET client_connection_check_interval = 5000;

-- tcp_user_timeout
SET tcp_user_timeout = 15000;

-- tcp_keepalives_idle
SET tcp_keepalives_idle = 5;

-- tcp_keepalives_interval
SET tcp_keepalives_interval = 2;

-- tcp_keepalives_count
SET tcp_keepalives_count = 3;

-- identity
SELECT pg_catalog.pg_backend_pid() AS pg_backend_pid_1, pg_catalog.pg_is_in_recovery() AS pg_is_in_recovery_1, pg_catalog.current_setting('transaction_read_only') AS current_setting_1, CAST(EXTRACT(epoch
FROM pg_catalog.pg_postmaster_start_time()) * 1000000 AS BIGINT) AS anon_1, CAST(pg_catalog.current_setting('max_locks_per_transaction') AS BIGINT) * (CAST(pg_catalog.current_setting('max_connections') AS BIGINT) + CAST(pg_catalog.current_setting('max_prepared_transactions') AS BIGINT)) AS anon_2, CAST(pg_catalog.current_setting('server_version_num') AS BIGINT) AS current_setting_2, pg_catalog.host(pg_catalog.inet_client_addr()) AS host_1, pg_catalog.inet_client_port() AS inet_client_port_1;

-- begin
BEGIN;

-- rollback
ROLLBACK;

-- take
SELECT anon_1.n, pg_catalog.pg_try_advisory_lock(anon_1.n) AS answer
FROM unnest(CAST(%(names)s::BIGINT[] AS BIGINT[])) AS anon_1(n);

-- claim
WITH settings AS MATERIALIZED
(SELECT set_config('lock_timeout', '200ms', true) AS lock_timeout),
want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h, given.n AS n, given.l AS l
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[]), CAST(%(names)s::BIGINT[] AS BIGINT[]), CAST(%(server_locks)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h, n, l) JOIN settings ON settings.lock_timeout IS NOT NULL),
free AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.n AS n, want.l AS l
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp() OR core_locks.server_lock = want.l)
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true),
taken AS
(UPDATE core_locks SET owner_token=free.o, attempt=free.a, kind='session', holder=free.h, server_lock=free.l, fencing_token=greatest(core_locks.fencing_token + 1, CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT)), acquired_at=clock_timestamp(), expires_at=(clock_timestamp() + free.t * interval '1 microsecond')
FROM free
WHERE free.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at),
made AS
(INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT want.k AS k, want.o AS o, want.a AS a, 'session', want.h AS h, want.l AS l, CAST(EXTRACT(epoch
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

-- claim, single
WITH settings AS MATERIALIZED
(SELECT set_config('lock_timeout', '200ms', true) AS lock_timeout),
want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t, CAST(%(holders)s::VARCHAR AS TEXT) AS h, CAST(%(names)s::BIGINT AS BIGINT) AS n, CAST(%(server_locks)s::VARCHAR AS TEXT) AS l
FROM settings
WHERE settings.lock_timeout IS NOT NULL),
free AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.n AS n, want.l AS l
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp() OR core_locks.server_lock = want.l)
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true),
taken AS
(UPDATE core_locks SET owner_token=free.o, attempt=free.a, kind='session', holder=free.h, server_lock=free.l, fencing_token=greatest(core_locks.fencing_token + 1, CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT)), acquired_at=clock_timestamp(), expires_at=(clock_timestamp() + free.t * interval '1 microsecond')
FROM free
WHERE free.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at),
made AS
(INSERT INTO core_locks (lock_key, owner_token, attempt, kind, holder, server_lock, fencing_token, acquired_at, expires_at) SELECT want.k AS k, want.o AS o, want.a AS a, 'session', want.h AS h, want.l AS l, CAST(EXTRACT(epoch
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

-- revive
WITH held AS MATERIALIZED
(SELECT (CAST(pg_catalog.pg_locks.classid AS BIGINT) << 32) | CAST(pg_catalog.pg_locks.objid AS BIGINT) AS n
FROM pg_catalog.pg_locks
WHERE pg_catalog.pg_locks.locktype = 'advisory' AND pg_catalog.pg_locks.objsubid = 1 AND pg_catalog.pg_locks.pid = pg_catalog.pg_backend_pid() AND pg_catalog.pg_locks.mode = 'ExclusiveLock' AND pg_catalog.pg_locks.granted AND pg_catalog.pg_locks.database = (SELECT pg_catalog.pg_database.oid
FROM pg_catalog.pg_database
WHERE pg_catalog.pg_database.datname = pg_catalog.current_database())),
want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h, given.n AS n, given.l AS l
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[]), CAST(%(names)s::BIGINT[] AS BIGINT[]), CAST(%(server_locks)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h, n, l)),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.n AS n, want.l AS l
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND core_locks.attempt = want.a AND core_locks.attempt != '' AND want.n IN (SELECT held.n
FROM held)
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true),
changed AS
(UPDATE core_locks SET expires_at=(clock_timestamp() + mine.t * interval '1 microsecond')
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN (now.owner_token = want.o AND now.attempt = want.a AND now.attempt != '' AND want.n IN (SELECT held.n
FROM held)) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- revive, single
WITH held AS MATERIALIZED
(SELECT (CAST(pg_catalog.pg_locks.classid AS BIGINT) << 32) | CAST(pg_catalog.pg_locks.objid AS BIGINT) AS n
FROM pg_catalog.pg_locks
WHERE pg_catalog.pg_locks.locktype = 'advisory' AND pg_catalog.pg_locks.objsubid = 1 AND pg_catalog.pg_locks.pid = pg_catalog.pg_backend_pid() AND pg_catalog.pg_locks.mode = 'ExclusiveLock' AND pg_catalog.pg_locks.granted AND pg_catalog.pg_locks.database = (SELECT pg_catalog.pg_database.oid
FROM pg_catalog.pg_database
WHERE pg_catalog.pg_database.datname = pg_catalog.current_database())),
want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t, CAST(%(holders)s::VARCHAR AS TEXT) AS h, CAST(%(names)s::BIGINT AS BIGINT) AS n, CAST(%(server_locks)s::VARCHAR AS TEXT) AS l),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.n AS n, want.l AS l
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND core_locks.attempt = want.a AND core_locks.attempt != '' AND want.n IN (SELECT held.n
FROM held)
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true),
changed AS
(UPDATE core_locks SET expires_at=(clock_timestamp() + mine.t * interval '1 microsecond')
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN (now.owner_token = want.o AND now.attempt = want.a AND now.attempt != '' AND want.n IN (SELECT held.n
FROM held)) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- beat
WITH held AS MATERIALIZED
(SELECT (CAST(pg_catalog.pg_locks.classid AS BIGINT) << 32) | CAST(pg_catalog.pg_locks.objid AS BIGINT) AS n
FROM pg_catalog.pg_locks
WHERE pg_catalog.pg_locks.locktype = 'advisory' AND pg_catalog.pg_locks.objsubid = 1 AND pg_catalog.pg_locks.pid = pg_catalog.pg_backend_pid() AND pg_catalog.pg_locks.mode = 'ExclusiveLock' AND pg_catalog.pg_locks.granted AND pg_catalog.pg_locks.database = (SELECT pg_catalog.pg_database.oid
FROM pg_catalog.pg_database
WHERE pg_catalog.pg_database.datname = pg_catalog.current_database()))
 SELECT anon_1.n
FROM unnest(CAST(%(names)s::BIGINT[] AS BIGINT[])) AS anon_1(n)
WHERE anon_1.n IN (SELECT held.n
FROM held);

-- release
WITH settings AS MATERIALIZED
(SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit),
want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h, given.n AS n, given.l AS l, given.s AS s
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[]), CAST(%(names)s::BIGINT[] AS BIGINT[]), CAST(%(server_locks)s::TEXT[] AS TEXT[]), CAST(%(signals)s::INTEGER[] AS INTEGER[])) AS given(k, o, a, t, h, n, l, s) JOIN settings ON settings.synchronous_commit IS NOT NULL),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.n AS n, want.l AS l, want.s AS s
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true),
changed AS
(UPDATE core_locks SET owner_token=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released:' || mine.a ELSE core_locks.owner_token END, attempt=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released' ELSE '' END, expires_at=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN core_locks.acquired_at + mine.t * interval '1 microsecond' ELSE clock_timestamp() END
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN (now.owner_token = want.o AND (want.a = '' OR now.attempt = want.a) AND now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at, CASE WHEN (changed.lock_key IS NOT NULL AND NOT pg_catalog.pg_try_advisory_xact_lock(1936813164, want.s)) THEN pg_catalog.pg_notify('sqllocks', CAST(want.s AS TEXT)) END AS notified, CASE WHEN (changed.lock_key IS NOT NULL) THEN pg_catalog.pg_advisory_unlock(want.n) END AS unlocked
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- release, single
WITH settings AS MATERIALIZED
(SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit),
want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t, CAST(%(holders)s::VARCHAR AS TEXT) AS h, CAST(%(names)s::BIGINT AS BIGINT) AS n, CAST(%(server_locks)s::VARCHAR AS TEXT) AS l, CAST(%(signals)s::INTEGER AS INTEGER) AS s
FROM settings
WHERE settings.synchronous_commit IS NOT NULL),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.n AS n, want.l AS l, want.s AS s
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true),
changed AS
(UPDATE core_locks SET owner_token=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released:' || mine.a ELSE core_locks.owner_token END, attempt=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released' ELSE '' END, expires_at=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN core_locks.acquired_at + mine.t * interval '1 microsecond' ELSE clock_timestamp() END
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN (now.owner_token = want.o AND (want.a = '' OR now.attempt = want.a) AND now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at, CASE WHEN (changed.lock_key IS NOT NULL AND NOT pg_catalog.pg_try_advisory_xact_lock(1936813164, want.s)) THEN pg_catalog.pg_notify('sqllocks', CAST(want.s AS TEXT)) END AS notified, CASE WHEN (changed.lock_key IS NOT NULL) THEN pg_catalog.pg_advisory_unlock(want.n) END AS unlocked
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- unlock
SELECT anon_1.n, pg_catalog.pg_advisory_unlock(anon_1.n) AS answer
FROM unnest(CAST(%(names)s::BIGINT[] AS BIGINT[])) AS anon_1(n);
