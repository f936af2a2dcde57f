"""``sqllocks demo``: real processes contend for one key, one is killed and one is frozen."""
