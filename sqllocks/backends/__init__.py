"""What holds a lock: a row of the lock table, or memory."""
