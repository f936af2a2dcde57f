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
);

-- storage
ALTER TABLE core_locks SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000);

-- claim_free
WITH want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h)),
free AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp())
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true)
 UPDATE core_locks SET owner_token=free.o, attempt=free.a, kind='lease', holder=free.h, server_lock='', fencing_token=greatest(core_locks.fencing_token + 1, CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT)), acquired_at=clock_timestamp(), expires_at=(clock_timestamp() + free.t * interval '1 microsecond')
FROM free
WHERE free.place = ctid
RETURNING core_locks.lock_key, 'done' AS verdict, core_locks.fencing_token, core_locks.expires_at;

-- claim_free, single
WITH want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t, CAST(%(holders)s::VARCHAR AS TEXT) AS h),
free AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp())
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true)
 UPDATE core_locks SET owner_token=free.o, attempt=free.a, kind='lease', holder=free.h, server_lock='', fencing_token=greatest(core_locks.fencing_token + 1, CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT)), acquired_at=clock_timestamp(), expires_at=(clock_timestamp() + free.t * interval '1 microsecond')
FROM free
WHERE free.place = ctid
RETURNING core_locks.lock_key, 'done' AS verdict, core_locks.fencing_token, core_locks.expires_at;

-- claim
WITH settings AS MATERIALIZED
(SELECT set_config('lock_timeout', '200ms', true) AS lock_timeout),
want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[])) AS given(k, o, a, t, h) JOIN settings ON settings.lock_timeout IS NOT NULL),
free AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp())
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true),
taken AS
(UPDATE core_locks SET owner_token=free.o, attempt=free.a, kind='lease', holder=free.h, server_lock='', fencing_token=greatest(core_locks.fencing_token + 1, CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT)), acquired_at=clock_timestamp(), expires_at=(clock_timestamp() + free.t * interval '1 microsecond')
FROM free
WHERE free.place = ctid
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

-- claim, single
WITH settings AS MATERIALIZED
(SELECT set_config('lock_timeout', '200ms', true) AS lock_timeout),
want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t, CAST(%(holders)s::VARCHAR AS TEXT) AS h
FROM settings
WHERE settings.lock_timeout IS NOT NULL),
free AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp())
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true),
taken AS
(UPDATE core_locks SET owner_token=free.o, attempt=free.a, kind='lease', holder=free.h, server_lock='', fencing_token=greatest(core_locks.fencing_token + 1, CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT)), acquired_at=clock_timestamp(), expires_at=(clock_timestamp() + free.t * interval '1 microsecond')
FROM free
WHERE free.place = ctid
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
WITH want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[])) AS given(k, o, a, t)),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true)
 UPDATE core_locks SET expires_at=(clock_timestamp() + mine.t * interval '1 microsecond')
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, 'done' AS verdict, core_locks.fencing_token, core_locks.expires_at;

-- renew, single
WITH want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true)
 UPDATE core_locks SET expires_at=(clock_timestamp() + mine.t * interval '1 microsecond')
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, 'done' AS verdict, core_locks.fencing_token, core_locks.expires_at;

-- release
WITH settings AS MATERIALIZED
(SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit),
want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.s AS s
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(signals)s::INTEGER[] AS INTEGER[])) AS given(k, o, a, t, s) JOIN settings ON settings.synchronous_commit IS NOT NULL),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.s AS s
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true)
 UPDATE core_locks SET owner_token=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released:' || mine.a ELSE core_locks.owner_token END, attempt=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released' ELSE '' END, expires_at=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN core_locks.acquired_at + mine.t * interval '1 microsecond' ELSE clock_timestamp() END
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, 'done' AS verdict, CAST(NULL AS BIGINT) AS anon_1, NULL AS expires_at, CASE WHEN (NOT pg_catalog.pg_try_advisory_xact_lock(1936813164, mine.s)) THEN pg_catalog.pg_notify('sqllocks', CAST(mine.s AS TEXT)) END AS notified;

-- release, single
WITH settings AS MATERIALIZED
(SELECT set_config('synchronous_commit', 'off', true) AS synchronous_commit),
want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t, CAST(%(signals)s::INTEGER AS INTEGER) AS s
FROM settings
WHERE settings.synchronous_commit IS NOT NULL),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.s AS s
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND core_locks.owner_token = want.o AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR NO KEY UPDATE OF core_locks SKIP LOCKED) AS found ON true)
 UPDATE core_locks SET owner_token=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released:' || mine.a ELSE core_locks.owner_token END, attempt=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN 'released' ELSE '' END, expires_at=CASE WHEN (mine.t > 0 AND core_locks.acquired_at + mine.t * interval '1 microsecond' > clock_timestamp()) THEN core_locks.acquired_at + mine.t * interval '1 microsecond' ELSE clock_timestamp() END
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, 'done' AS verdict, CAST(NULL AS BIGINT) AS anon_1, NULL AS expires_at, CASE WHEN (NOT pg_catalog.pg_try_advisory_xact_lock(1936813164, mine.s)) THEN pg_catalog.pg_notify('sqllocks', CAST(mine.s AS TEXT)) END AS notified;

-- break
WITH want AS
(SELECT given.k AS k, given.o AS o, given.a AS a, given.t AS t, given.h AS h, given.s AS s
FROM unnest(CAST(%(keys)s::TEXT[] AS TEXT[]), CAST(%(owners)s::TEXT[] AS TEXT[]), CAST(%(attempts)s::TEXT[] AS TEXT[]), CAST(%(ttls)s::BIGINT[] AS BIGINT[]), CAST(%(holders)s::TEXT[] AS TEXT[]), CAST(%(signals)s::INTEGER[] AS INTEGER[])) AS given(k, o, a, t, h, s)),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.s AS s
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true),
changed AS
(UPDATE core_locks SET owner_token=mine.o, attempt='', expires_at=clock_timestamp()
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN ((want.a = '' OR now.attempt = want.a) AND now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at, CASE WHEN (changed.lock_key IS NOT NULL AND NOT pg_catalog.pg_try_advisory_xact_lock(1936813164, want.s)) THEN pg_catalog.pg_notify('sqllocks', CAST(want.s AS TEXT)) END AS notified
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- break, single
WITH want AS
(SELECT CAST(%(keys)s::VARCHAR AS TEXT) AS k, CAST(%(owners)s::VARCHAR AS TEXT) AS o, CAST(%(attempts)s::VARCHAR AS TEXT) AS a, CAST(%(ttls)s::BIGINT AS BIGINT) AS t, CAST(%(holders)s::VARCHAR AS TEXT) AS h, CAST(%(signals)s::INTEGER AS INTEGER) AS s),
mine AS
(SELECT found.place AS place, want.k AS k, want.o AS o, want.a AS a, want.t AS t, want.h AS h, want.s AS s
FROM want JOIN LATERAL (SELECT ctid AS place
FROM core_locks
WHERE core_locks.lock_key = want.k AND (want.a = '' OR core_locks.attempt = want.a) AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR UPDATE OF core_locks SKIP LOCKED) AS found ON true),
changed AS
(UPDATE core_locks SET owner_token=mine.o, attempt='', expires_at=clock_timestamp()
FROM mine
WHERE mine.place = ctid
RETURNING core_locks.lock_key, core_locks.fencing_token, core_locks.expires_at)
 SELECT want.k, CASE WHEN (changed.lock_key IS NOT NULL) THEN 'done' WHEN ((want.a = '' OR now.attempt = want.a) AND now.attempt != '' AND now.expires_at > clock_timestamp()) THEN 'skipped' ELSE 'refused' END AS verdict, coalesce(changed.fencing_token, now.fencing_token) AS fencing_token, coalesce(changed.expires_at, now.expires_at) AS expires_at, CASE WHEN (changed.lock_key IS NOT NULL AND NOT pg_catalog.pg_try_advisory_xact_lock(1936813164, want.s)) THEN pg_catalog.pg_notify('sqllocks', CAST(want.s AS TEXT)) END AS notified
FROM want
LEFT OUTER JOIN changed ON changed.lock_key = want.k
LEFT OUTER JOIN core_locks AS now ON now.lock_key = want.k;

-- read
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp() AS held, clock_timestamp() AS seen_at
FROM core_locks
WHERE core_locks.lock_key = any(CAST(%(keys)s::TEXT[] AS TEXT[]));

-- read, single
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp() AS held, clock_timestamp() AS seen_at
FROM core_locks
WHERE core_locks.lock_key = %(key)s::VARCHAR;

-- list
SELECT core_locks.lock_key, core_locks.owner_token, core_locks.attempt, core_locks.kind, core_locks.holder, core_locks.server_lock, core_locks.fencing_token, core_locks.acquired_at, core_locks.expires_at, core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp() AS held, clock_timestamp() AS seen_at
FROM core_locks
WHERE substr(core_locks.lock_key, 1, %(length)s::INTEGER) = %(prefix)s::VARCHAR
ORDER BY core_locks.lock_key;

-- lockers
SELECT pg_stat_activity.pid, pg_stat_activity.application_name, pg_stat_activity.state, pg_stat_activity.xact_start
FROM (SELECT CAST(xmax AS TEXT) AS number
FROM core_locks
WHERE core_locks.lock_key = %(key)s::VARCHAR UNION ALL SELECT CAST(member.xid AS TEXT) AS xid
FROM core_locks, pg_catalog.pg_get_multixact_members(CASE WHEN (pg_catalog.mxid_age(xmax) > 0 AND pg_catalog.mxid_age(xmax) <= (SELECT pg_catalog.mxid_age(pg_database.datminmxid) AS mxid_age_1
FROM pg_catalog.pg_database AS pg_database
WHERE pg_database.datname = pg_catalog.current_database())) THEN xmax END) AS member
WHERE core_locks.lock_key = %(key)s::VARCHAR) AS lockers JOIN pg_catalog.pg_locks AS pg_locks ON CAST(pg_locks.transactionid AS TEXT) = lockers.number JOIN pg_catalog.pg_stat_activity AS pg_stat_activity ON pg_stat_activity.pid = pg_locks.pid
WHERE pg_locks.granted
ORDER BY pg_stat_activity.xact_start;

-- stale
SELECT core_locks.lock_key
FROM core_locks
WHERE substr(core_locks.lock_key, 1, %(length)s::INTEGER) = %(prefix)s::VARCHAR AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp()) AND core_locks.expires_at <= clock_timestamp() - %(idle)s::BIGINT * interval '1 microsecond' AND core_locks.fencing_token <= CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT) - %(idle)s::BIGINT
ORDER BY core_locks.lock_key
 LIMIT 500
FOR UPDATE SKIP LOCKED;

-- remove
WITH "old" AS
(SELECT core_locks.lock_key AS lock_key
FROM core_locks
WHERE core_locks.lock_key = any(CAST(%(keys)s::TEXT[] AS TEXT[])) AND (core_locks.attempt = '' OR core_locks.expires_at <= clock_timestamp()) AND core_locks.expires_at <= clock_timestamp() - %(idle)s::BIGINT * interval '1 microsecond' AND core_locks.fencing_token <= CAST(EXTRACT(epoch
FROM clock_timestamp()) * 1000000 AS BIGINT) - %(idle)s::BIGINT
ORDER BY core_locks.lock_key
FOR UPDATE SKIP LOCKED)
 DELETE
FROM core_locks USING "old"
WHERE core_locks.lock_key = "old".lock_key
RETURNING core_locks.lock_key;
