"""What `diagnose` and `sqllocks doctor` find, on servers as they are and as they should not be."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, MetaData, create_engine, make_url
from sqlalchemy.engine import Engine

from sqllocks import (
    AsyncMemoryElector,
    AsyncSqlElector,
    AsyncSqlLocker,
    BackendUnsupported,
    Diagnosis,
    Finding,
    MemoryElector,
    MemoryLocker,
    MemoryLockProvider,
    SqlElector,
    SqlLocker,
    SqlLockProvider,
)
from sqllocks.cli import main
from sqllocks.core.diagnosing import Clinic, session_findings
from sqllocks.dialects.mysql import MysqlLeases
from sqllocks.dialects.mysql_checks import mysql_checks
from sqllocks.dialects.postgresql import PostgresqlLeases
from sqllocks.dialects.postgresql_checks import postgresql_checks
from sqllocks.dialects.sessions import Server
from sqllocks.runtime.blocking import drive
from sqllocks.schema import core_locks
from tests.conformance.subject import Subject, on_connect
from tests.servers import fresh_database, require_server
from tests.servers.fixtures import StandbyURLs

Found = dict[str, list[Finding]]
NETWORKED = ["postgresql", "mysql", "mariadb"]
LOCKS = core_locks(MetaData())


def by_code(diagnosis: Diagnosis) -> Found:
    """Return the findings under their codes."""
    found: Found = {}
    for finding in diagnosis.findings:
        assert finding.message
        assert "secret" not in str(finding)
        found.setdefault(finding.code, []).append(finding)
    return found


def level(found: Found, code: str) -> str | None:
    """Return the level of the one finding with a code."""
    findings = found.get(code, [])
    assert len(findings) <= 1, findings
    return findings[0].level if findings else None


def text_of(url: str | URL) -> str:
    """Return an address as a text, password and all."""
    return make_url(url).render_as_string(hide_password=False)


@pytest.fixture(params=NETWORKED)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a database without a lock table, on each server in turn."""
    require_server(request.param)
    with fresh_database(request.param) as url:
        yield text_of(url)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """Return a PostgreSQL database with the lock table."""
    require_server("postgresql")
    with fresh_database("postgresql") as url:
        with SqlLockProvider(url) as locks:
            locks.create_table()
        yield text_of(url)


@contextmanager
def application(address: str, *statements: str) -> Iterator[Engine]:
    """Give an engine whose connections the application sets up."""
    with SqlLockProvider(address) as made:
        driver = made._sessions._engine.url.drivername
    engine = create_engine(make_url(address).set(drivername=driver))
    on_connect(engine, *statements)
    yield engine
    engine.dispose()


def execute(address: str, *statements: str) -> None:
    """Run statements as an administrator."""
    with application(address) as engine, engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


# -- as it should be


def test_a_good_table_is_told_on_every_backend(table_subject: Subject) -> None:
    found = by_code(table_subject.a.call("diagnose"))
    assert [level(found, code) for code in ("server", "table", "privileges", "clock")] == ["ok"] * 4
    assert not [each for findings in found.values() for each in findings if each.level == "failure"]
    name = {"sqlite": "SQLite 3", "postgresql": "PostgreSQL 1", "mysql": "MySQL ", "mariadb": "MariaDB 1"}
    assert found["server"][0].message.startswith(name[table_subject.kind.server])


def test_a_missing_table_is_a_failure_with_its_remedy(table_subject: Subject) -> None:
    found = by_code(table_subject.client(table="nowhere").call("diagnose"))
    assert level(found, "table") == "failure"
    assert "`sqllocks init --url URL --table nowhere`" in found["table"][0].remedy
    assert "privileges" not in found


def test_an_unreachable_database_is_a_finding(table_subject: Subject) -> None:
    found = by_code(table_subject.client(table_subject.unreachable).call("diagnose"))
    assert level(found, "unreachable") == "failure"
    assert len(found) == 1


def test_memory_excludes_this_process_alone(memory_subject: Subject) -> None:
    diagnosis = memory_subject.a.call("diagnose")
    assert (diagnosis.ok, diagnosis.level) == (True, "note")
    for made in (MemoryLocker(), MemoryElector(), MemoryLockProvider()):
        assert made.diagnose() == diagnosis
    assert diagnosis == memory_subject.loop.run(AsyncMemoryElector().diagnose())


def test_session_locks_are_tried(url: str) -> None:
    with SqlLocker(url, fencing=False) as locker:
        found = by_code(locker.diagnose())
        assert "table" not in found
        assert level(found, "session-locks") == "ok"
    create_table(url)
    with SqlLocker(url) as locker, SqlElector(url) as elector:
        for made in (locker, elector):
            diagnosis = made.diagnose()
            found = by_code(diagnosis)
            assert [level(found, code) for code in ("session-locks", "table", "privileges")] == ["ok"] * 3
            assert not diagnosis.failures
        with locker.lock("some", wait=0) as lock:  # and that was no harm
            assert lock.held()


def test_both_forms_find_the_same(postgresql: str) -> None:
    async def found() -> list[Diagnosis]:
        async with AsyncSqlLocker(postgresql) as locker, AsyncSqlElector(postgresql) as elector:
            return [await locker.diagnose(), await elector.diagnose()]

    with SqlLocker(postgresql) as locker, SqlElector(postgresql) as elector:
        assert asyncio.run(found()) == [locker.diagnose(), elector.diagnose()]


def create_table(address: str, table: str = "core_locks") -> None:
    """Create the table."""
    with SqlLockProvider(address, table=table) as locks:
        locks.create_table()


# -- as it should not be


def test_a_table_that_is_not_the_librarys(url: str) -> None:
    create_table(url, "odd_locks")
    change = "ALTER COLUMN fencing_token TYPE integer" if "postgresql" in url else "MODIFY fencing_token INT"
    execute(
        url,
        "CREATE TABLE core_locks (lock_key VARCHAR(255) PRIMARY KEY, owner_token VARCHAR(9))",
        f"ALTER TABLE odd_locks {change}",
    )
    for table, said in (("core_locks", "it lacks .*expires_at"), ("odd_locks", "fencing_token is int")):
        with SqlLockProvider(url, table=table) as locks:
            found = by_code(locks.diagnose())
        assert level(found, "table") == "failure"
        assert re.search(said, found["table"][0].message)


def test_missing_rights_are_named(network_subject: Subject) -> None:
    name = network_subject.key("role").replace(":", "_")[:30]
    roles = network_subject.kind.server == "postgresql"
    table = "core_locks" if roles else f"`{network_subject.url.database}`.core_locks"
    grant = f"GRANT SELECT, UPDATE ON {table}"
    kind, proof = ("ROLE", "LOGIN PASSWORD 'secret'") if roles else ("USER", "IDENTIFIED BY 'secret'")
    role = f"CREATE {kind} {name} {proof}"
    with network_subject.observer.engine.connect() as connection:
        connection.exec_driver_sql(role)
        connection.exec_driver_sql(f"{grant} TO {name}")
    client = network_subject.client(network_subject.url.set(username=name, password="secret"))
    found = by_code(client.call("diagnose"))
    client.close()
    with network_subject.observer.engine.connect() as connection:
        if roles:
            connection.exec_driver_sql(f"DROP OWNED BY {name}")
        connection.exec_driver_sql(f"DROP {kind} {name}")
    assert {each.remedy.split()[1] for each in found["privileges"]} == {"INSERT", "DELETE"}
    assert {each.level for each in found["privileges"]} == {"failure"}


@pytest.mark.parametrize(
    ("statement", "code", "expected"),
    [
        ("SET synchronous_commit = off", "durability", "warning"),
        ("SET default_transaction_isolation = 'serializable'", "isolation", "note"),
        ("SET default_transaction_read_only = on", "read-only", "failure"),
    ],
)
def test_settings_of_postgresql(postgresql: str, statement: str, code: str, expected: str) -> None:
    with application(postgresql, statement) as engine, SqlLockProvider(engine) as locks:
        found = by_code(locks.diagnose())
    # the servers of the tests have no durable disk at all
    findings = [each for each in found[code] if not each.message.startswith(("fsync", "full_page"))]
    assert [each.level for each in findings] == [expected]


def test_the_storage_of_a_table_on_postgresql(postgresql: str) -> None:
    for table in ("odd_locks", "loose_locks"):
        create_table(postgresql, table)
    execute(
        postgresql,
        "ALTER TABLE odd_locks SET UNLOGGED",
        "CREATE INDEX ON odd_locks (expires_at)",
        'ALTER TABLE odd_locks ALTER COLUMN holder TYPE varchar(255) COLLATE "default"',
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "ALTER TABLE loose_locks ALTER COLUMN lock_key TYPE varchar(255) COLLATE loose",
    )
    with SqlLockProvider(postgresql, table="odd_locks") as locks:
        found = by_code(locks.diagnose())
        levels = [level(found, code) for code in ("unlogged", "storage", "collation")]
        assert levels == ["warning", "note", "note"]
    with SqlLockProvider(postgresql, table="loose_locks") as locks:
        assert level(by_code(locks.diagnose()), "collation") == "failure"


@pytest.mark.parametrize("server", ["mysql", "mariadb"])
def test_the_storage_of_a_table_on_mysql(server: str) -> None:
    require_server(server)
    with fresh_database(server) as url:
        address = text_of(url)
        create_table(address)
        execute(
            address,
            "ALTER TABLE core_locks MODIFY lock_key VARCHAR(255) COLLATE utf8mb4_bin, ENGINE = MEMORY",
            "CREATE INDEX more ON core_locks (expires_at)",
        )
        with SqlLockProvider(address) as locks:
            found = by_code(locks.diagnose())
    assert [level(found, code) for code in ("collation", "engine", "storage")] == [
        "failure",
        "failure",
        "note",
    ]
    assert "utf8mb4_bin" in found["collation"][0].message
    # MySQL's own default
    assert level(found, "isolation") == "note"


def test_a_file_without_care_for_the_disk_and_one_that_may_not_be_written(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'locks.db'}"
    create_table(address)
    with application(address, "PRAGMA synchronous = OFF", "PRAGMA journal_mode = MEMORY") as engine:
        with SqlLockProvider(engine) as locks:
            found = by_code(locks.diagnose())
        assert [each.level for each in found["durability"]] == ["warning", "warning"]
    with SqlLockProvider(f"sqlite:///file:{tmp_path / 'locks.db'}?mode=ro&uri=true") as locks:
        assert level(by_code(locks.diagnose()), "read-only") == "failure"


# -- in between


def test_a_transaction_pooler_is_a_warning_and_carries_no_session_locks() -> None:
    require_server("pgbouncer")
    with fresh_database("pgbouncer") as url:
        address = make_url(url)
        create_table(address.render_as_string(hide_password=False))
        with SqlLockProvider(address) as locks:
            assert level(by_code(locks.diagnose()), "pooler") == "warning"
        with SqlElector(address) as elector:
            found = by_code(elector.diagnose())
            assert level(found, "pooler") == "warning"
            assert level(found, "session-locks") == "note"
        for options in ({}, {"pooler": "session"}):
            with SqlLocker(address, **options) as locker:  # type: ignore[arg-type]
                found = by_code(locker.diagnose())
            assert level(found, "session-locks") == "failure"
        with SqlElector(address, strategy="session") as elector:
            assert level(by_code(elector.diagnose()), "session-locks") == "failure"
        assert main(["doctor", "--url", address.render_as_string(hide_password=False)]) == 1


def test_a_session_pooler_is_a_note_for_whom_says_so(pgbouncer_session: str) -> None:
    with SqlLocker(pgbouncer_session, pooler="session", fencing=False) as locker:
        found = by_code(locker.diagnose())
    assert level(found, "pooler") == "note"
    assert level(found, "session-locks") == "ok"


def test_a_standby_is_a_failure(standby: StandbyURLs) -> None:
    with SqlElector(standby.standby) as elector:
        found = by_code(elector.diagnose())
    assert level(found, "standby") == "failure"
    assert level(found, "session-locks") == "note"


# -- what few servers can be brought to say


def test_clocks_that_differ_are_a_note(postgresql: str) -> None:
    for ahead, said in ((timedelta(seconds=5), "behind"), (timedelta(seconds=-5), "ahead of")):
        clinic = Clinic(lambda ahead=ahead: datetime.now(UTC) + ahead, lambda session: None)  # type: ignore[misc]
        with SqlLockProvider(postgresql) as locks:
            found = by_code(Diagnosis(tuple(drive(clinic.examine(locks._sessions)))))
        assert level(found, "clock") == "note"
        assert said in found["clock"][0].message


def judged(checks: Any, number: int, rows: list[tuple[Any, ...]]) -> Found:
    """Return what is made of an answer."""
    return by_code(Diagnosis(tuple(checks.server[number].judge(rows))))


def test_what_postgresql_may_say() -> None:
    checks = postgresql_checks(PostgresqlLeases(LOCKS))
    found = judged(
        checks,
        0,
        [
            ("server_version_num", "130012"),
            ("recovery", "true"),
            ("server_encoding", "LATIN1"),
            ("fsync", "off"),
        ],
    )
    assert {code: findings[0].level for code, findings in found.items()} == {
        "server": "ok",
        "version": "failure",
        "standby": "failure",
        "encoding": "warning",
        "durability": "warning",
    }


def test_what_mysql_may_say() -> None:
    checks = mysql_checks(MysqlLeases(LOCKS), mariadb=False)
    good = [("transaction_isolation", "READ-COMMITTED"), ("innodb_flush_log_at_trx_commit", "1")]
    assert set(judged(checks, 0, good)) == {"server"}
    for said, code, expected in (
        ([("read_only", "ON")], "read-only", "failure"),
        ([("log_bin", "ON"), ("binlog_format", "STATEMENT")], "binlog", "failure"),
        ([("wsrep_on", "ON"), ("wsrep_provider", "/usr/lib/galera.so")], "cluster", "note"),
        ([("group_replication_group_name", "aaaa")], "cluster", "note"),
    ):
        assert level(judged(checks, 0, [*good, *said]), code) == expected
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert level(judged(checks, 1, [(moment, 0, moment)]), "sysdate") == "warning"
    assert judged(checks, 1, [(moment, 0, moment + timedelta(microseconds=2000))]) == {}


def test_what_a_server_would_not_set_is_told() -> None:
    class Told:
        server: Server | None = Server(1, "x", most_locks=7)
        unset: dict[str, str] = {"idle_session_timeout": "permission denied", "tcp_user_timeout": "not here"}  # noqa: RUF012

    found = by_code(Diagnosis(tuple(session_findings(None, Told(), 15))))
    assert level(found, "session-lease") == "warning"
    assert level(found, "session-settings") == "note"
    assert "7" in found["session-room"][0].message
    refused = BackendUnsupported("they do not exclude.")
    assert [each.level for each in session_findings(refused, Told(), 15)] == ["failure"]
    assert [each.level for each in session_findings(refused, Told(), 15, needed=False)] == ["note"]


def test_a_diagnosis_is_as_bad_as_its_worst_finding() -> None:
    ok, note, warning, failure = (
        Finding(each, "code", each) for each in ("ok", "note", "warning", "failure")
    )
    assert Diagnosis(()).ok
    assert Diagnosis((note, ok)).level == "note"
    worse = Diagnosis((warning, note, warning))
    assert (worse.level, worse.ok, len(worse.warnings), worse.failures) == ("warning", False, 2, ())
    assert Diagnosis((failure, warning)).level == "failure"
    assert str(Diagnosis((ok, Finding("failure", "code", "broken", "mend it")))) == (
        "ok: ok.\nfailure: broken. Remedy: mend it."
    )


# -- the command


def test_doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SQLLOCKS_URL", raising=False)
    (tmp_path / "locks.db").touch()
    address = f"sqlite:///{tmp_path / 'locks.db'}"
    assert main(["doctor", "--url", address]) == 2
    assert "failure: there is no table core_locks. Remedy: " in capsys.readouterr().out
    assert main(["init", "--url", address]) == 0
    capsys.readouterr()
    assert main(["doctor", "--url", address, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["level"] == "note"
    with SqlLockProvider(address) as locks:
        assert said["findings"] == [
            {"level": each.level, "code": each.code, "message": each.message, "remedy": each.remedy}
            for each in locks.diagnose().findings
        ]
    assert main(["doctor", "--url", "postgresql://me:topsecret@127.0.0.1:1/db"]) == 2
    output = capsys.readouterr()
    assert "cannot connect" in output.out
    assert "topsecret" not in output.out + output.err
    assert main(["doctor", "--url", "not a url"]) == 64
