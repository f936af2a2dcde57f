"""Processes that start in 10 ms instead of 600: forked from one that has loaded everything and does nothing.

There is one such process for a whole test run, so what it loads is said in one place.
"""

from __future__ import annotations

import multiprocessing

PRELOADED = (
    "tests.chaos.worker",
    "tests.scenarios.workers",
    "psycopg",
    "asyncpg",
    "pymysql",
    "aiomysql",
    "aiosqlite",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.sqlite",
)
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(list(PRELOADED))


def warm_up() -> None:
    """Return once that process has loaded everything, which takes seconds on a busy machine."""
    first = FORKING.Process(target=int)
    first.start()
    first.join()
