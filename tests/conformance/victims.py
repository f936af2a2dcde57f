"""Make statements on a table fail as a deadlock's victim would, for as often as is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.conformance.observing import Observer

ALWAYS = 1_000_000


@contextmanager
def victim_at_first(observer: Observer, table: str, *, times: int) -> Iterator[None]:
    """Let the first ``times`` writes to the table fail with the server's deadlock error."""
    make, remove = (_postgresql if observer.server == "postgresql" else _mysql)(table, times)
    for statement in remove + make:
        observer.rows(statement)
    try:
        yield
    finally:
        for statement in remove:
            observer.rows(statement)


@contextmanager
def always_a_victim(observer: Observer, table: str) -> Iterator[None]:
    """Let every write to the table fail with the server's deadlock error."""
    with victim_at_first(observer, table, times=ALWAYS):
        yield


def _postgresql(table: str, times: int) -> tuple[list[str], list[str]]:
    # a sequence goes on although the statement that moved it fails
    make = [
        "CREATE SEQUENCE victim_count",
        "CREATE FUNCTION victim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('victim_count') <= {times} THEN"
        " RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$",
        f"CREATE TRIGGER victim BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION victim()",
    ]
    remove = [
        f"DROP TRIGGER IF EXISTS victim ON {table}",
        "DROP FUNCTION IF EXISTS victim()",
        "DROP SEQUENCE IF EXISTS victim_count",
    ]
    return make, remove


def _mysql(table: str, times: int) -> tuple[list[str], list[str]]:
    # MyISAM knows no transactions, so the count survives the failure
    body = (
        "BEGIN UPDATE victim_count SET n = n + 1;"
        f" IF (SELECT n FROM victim_count) <= {times} THEN"
        " SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; END IF; END"
    )
    make = [
        "CREATE TABLE victim_count (n INT NOT NULL) ENGINE = MyISAM",
        "INSERT INTO victim_count VALUES (0)",
        f"CREATE TRIGGER victim_insert BEFORE INSERT ON {table} FOR EACH ROW {body}",
        f"CREATE TRIGGER victim_update BEFORE UPDATE ON {table} FOR EACH ROW {body}",
    ]
    remove = [
        "DROP TRIGGER IF EXISTS victim_insert",
        "DROP TRIGGER IF EXISTS victim_update",
        "DROP TABLE IF EXISTS victim_count",
    ]
    return make, remove
