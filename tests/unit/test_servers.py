"""A server of the tests: the right one, kept across restarts, and ended without a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.servers import (
    DRIVERS,
    LocalServer,
    PgBouncer,
    Unavailable,
    fresh_database,
    launch,
    mysql,
    postgresql,
    require_server,
    url_for,
    variable,
)
from tests.servers.base import Options
from tests.servers.clients import NotYet, execute
from tests.servers.waiting import gone, wait_until

LOCAL = ("binaries", "wheel", "apt")


@pytest.fixture
def private(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    """Start a server of the name that the test is parametrized with."""
    require_server(request.param)  # what the run could not have, this test cannot either
    try:
        server = launch(request.param, sources=LOCAL)
    except Unavailable as error:
        pytest.skip(str(error))
    assert isinstance(server, LocalServer)
    with server:
        yield server


@pytest.mark.parametrize("private", ["postgresql", "mysql", "mariadb"], indirect=True)
def test_a_restart_keeps_port_and_data_and_a_close_leaves_nothing(private: LocalServer) -> None:
    url = private.url
    execute(url, "CREATE TABLE kept (id int)")
    for number, end in enumerate((private.stop, private.kill)):
        before = private.pid
        execute(url, f"INSERT INTO kept VALUES ({number})")
        end()
        assert gone(before)
        with pytest.raises(NotYet):
            execute(url, "SELECT id FROM kept")
        private.start()
        assert private.url == url
        assert private.pid != before
    assert sorted(row[0] for row in execute(url, "SELECT id FROM kept")) == [0, 1]
    check_close(private)


@pytest.mark.parametrize("private", ["pgbouncer"], indirect=True)
def test_a_pooler_restarts_and_closes_with_its_upstream(private: LocalServer) -> None:
    assert isinstance(private, PgBouncer)
    private.kill()
    private.start()
    assert execute(private.url, "SELECT 1")
    check_close(private)
    with pytest.raises(NotYet):
        execute(private.upstream, "SELECT 1")


def check_close(server: LocalServer) -> None:
    """Close the server and check that nothing of it is left."""
    pid = server.pid
    server.close()
    assert gone(pid)
    assert not server.directory.exists()
    with pytest.raises(RuntimeError):
        _ = server.pid
    server.close()


@pytest.mark.parametrize("private", ["postgresql"], indirect=True)
def test_a_killed_postgresql_takes_its_backends_along(private: LocalServer) -> None:
    ((backend,),) = execute(
        private.url, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
    )
    private.kill()
    assert wait_until(lambda: gone(backend))


def test_each_kind_says_what_it_is() -> None:
    (told,) = execute(require_server("postgresql"), "SELECT version()")
    assert told[0].startswith("PostgreSQL")


@pytest.mark.parametrize("name", ["mysql", "mariadb"])
def test_mysql_and_mariadb_are_told_apart(name: str) -> None:
    ((version,),) = execute(require_server(name), "SELECT version()")
    assert ("MariaDB" in version) is (name == "mariadb")


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (postgresql.settings, "fsync", "off"),
        (mysql.MySQL.server_settings, "innodb-flush-log-at-trx-commit", "2"),
        (mysql.MariaDB.server_settings, "innodb-flush-log-at-trx-commit", "2"),
    ],
)
def test_durability_is_given_up_for_speed_unless_asked_for(
    given: Callable[[Options], dict[str, str]], name: str, value: str
) -> None:
    assert given(Options())[name] == value
    assert name not in given(Options(durable=True))  # every server's own default is the safe one
    assert given(Options(durable=True, settings={name: "mine"}))[name] == "mine"


def test_settings_reach_the_server() -> None:
    require_server("postgresql")
    with launch("postgresql", durable=True, settings={"max_connections": "30"}, sources=LOCAL) as server:
        assert execute(server.url, "SHOW max_connections")[0][0] == "30"
        assert execute(server.url, "SHOW fsync")[0][0] == "on"


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_pools_as_asked(mode: str) -> None:
    require_server("pgbouncer")
    with launch("pgbouncer", settings={"pool_mode": mode}, upstream=require_server("postgresql")) as server:
        assert isinstance(server, PgBouncer)
        config = {row[0]: row[1] for row in execute(server.console_url, "SHOW CONFIG")}
        assert (config["pool_mode"], config["default_pool_size"]) == (mode, "4")
        assert execute(server.url, "SELECT current_user")[0][0] == "sqllocks"


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        ("postgresql", "psycopg"),
        ("pgbouncer", "psycopg"),
        ("mysql", "pymysql"),
        ("mariadb", "pymysql"),
        ("sqlite", "pysqlite"),
    ],
)
def test_a_fresh_database_is_there_and_then_gone(name: str, driver: str) -> None:
    with fresh_database(require_server(name)) as url:
        engine = create_engine(url_for(url, driver))
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE mine (id int)"))
        held = engine.connect()
        assert held.execute(text("SELECT count(*) FROM mine")).scalar() == 0
    # a connection that is still open does not keep the database alive
    with contextlib.suppress(Exception):
        held.invalidate()
    held.close()
    engine.dispose()
    if name == "sqlite":
        assert not Path(str(url.database)).exists()
        return
    query = "SELECT 1 FROM pg_database WHERE datname"
    if driver == "pymysql":
        query = "SELECT 1 FROM information_schema.schemata WHERE schema_name"
    assert list(execute(require_server(name), f"{query} = '{url.database}'")) == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_has_its_url(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = DRIVERS[driver]
    monkeypatch.setenv(variable("postgresql"), "postgresql://u:p@127.0.0.1:1/d")
    monkeypatch.setenv(variable("mariadb"), "mariadb://u:p@127.0.0.1:2/d")
    monkeypatch.setenv(variable("sqlite"), "sqlite:////tmp/x.sqlite3")
    name = "mariadb" if family == "mysql" else family
    assert url_for(name, driver).drivername == f"{family}+{driver}"
    other = "sqlite" if family != "sqlite" else "postgresql"
    with pytest.raises(ValueError, match="does not speak"):
        url_for(other, driver)
