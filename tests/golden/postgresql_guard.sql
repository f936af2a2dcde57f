-- guard
SELECT current_setting('transaction_isolation') AS level, l.owner_token, l.attempt, l.fencing_token, l.expires_at > clock_timestamp() AS live
FROM (SELECT 1 AS one) AS always
LEFT OUTER JOIN (SELECT core_locks.owner_token AS owner_token, core_locks.attempt AS attempt, core_locks.fencing_token AS fencing_token, core_locks.expires_at AS expires_at
FROM core_locks
WHERE core_locks.lock_key = %(guarded_key)s::VARCHAR
FOR KEY SHARE) AS l ON true;

-- bounded guard
SELECT current_setting('transaction_isolation') AS level, l.owner_token, l.attempt, l.fencing_token, l.expires_at > clock_timestamp() AS live, set_config('idle_in_transaction_session_timeout', CAST(least(nullif(CAST(EXTRACT(epoch
FROM CAST(current_setting('idle_in_transaction_session_timeout') AS INTERVAL)) * 1000 AS BIGINT), 0), %(milliseconds)s::INTEGER) AS TEXT), true) AS idle_limit
FROM (SELECT 1 AS one) AS always
LEFT OUTER JOIN (SELECT core_locks.owner_token AS owner_token, core_locks.attempt AS attempt, core_locks.fencing_token AS fencing_token, core_locks.expires_at AS expires_at
FROM core_locks
WHERE core_locks.lock_key = %(guarded_key)s::VARCHAR
FOR KEY SHARE) AS l ON true;

-- fenced
UPDATE rows SET n=%(n)s::INTEGER
WHERE EXISTS (SELECT 1
FROM core_locks
WHERE core_locks.lock_key = %(lock_key_1)s::VARCHAR AND core_locks.owner_token = %(owner_token_1)s::VARCHAR AND core_locks.fencing_token = %(fencing_token_1)s::BIGINT AND core_locks.attempt != '' AND core_locks.expires_at > clock_timestamp()
FOR KEY SHARE);
