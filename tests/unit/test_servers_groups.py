"""Servers of the tests that are more than one, or a test's own to stop and freeze."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.servers import ON_DEMAND, LocalServer, Missing, lending, url_for, variable
from tests.servers.clients import execute
from tests.servers.fixtures import StandbyURLs
from tests.servers.process import accepts
from tests.servers.standby import Standby
from tests.servers.waiting import wait_until

Own = Callable[[str], LocalServer]
NODES = ("mysql://u:p@127.0.0.1:1/d", "mysql://u:p@127.0.0.1:2/d")
SSL_REQUEST = struct.pack("!ii", 8, 80877103)


def test_a_group_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "_known", {})
    monkeypatch.setenv(variable("galera"), " ".join(NODES))
    assert lending.offers([], [])["galera"] == "(env)"
    assert lending.borrow("galera") == NODES


def test_what_has_nothing_to_stand_on_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ON_DEMAND:
        monkeypatch.delenv(variable(name), raising=False)
    offered = lending.offers(["postgresql"], ON_DEMAND)
    assert offered["standby"] == "on demand"
    assert offered["galera"] == Missing("galera", "this run has no mariadb")
    assert offered["pgbouncer-session"] == Missing("pgbouncer-session", "this run has no pgbouncer")
    assert lending.offers(["postgresql"], [])["standby"] == Missing("standby", "not asked for in this run")


def test_a_session_pooler_leaves_each_client_its_session(pgbouncer_session: str) -> None:
    with (
        psycopg.connect(pgbouncer_session, autocommit=True) as one,
        psycopg.connect(pgbouncer_session, autocommit=True) as other,
    ):
        query = "SELECT pg_backend_pid()"
        backends = [[client.execute(query).fetchone() for client in (one, other)] for _ in range(2)]
        assert backends[0] == backends[1]
        assert len(set(backends[0])) == 2


def test_a_standby_follows_its_primary_and_takes_no_writes(standby: StandbyURLs) -> None:
    execute(standby.primary, "CREATE TABLE IF NOT EXISTS followed (id int)")
    assert wait_until(lambda: "followed" in tables(standby.standby))
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        execute(standby.standby, "INSERT INTO followed VALUES (1)")


def tables(url: str) -> list[str]:
    return [row[0] for row in execute(url, "SELECT relname::text FROM pg_class WHERE relname = 'followed'")]


def test_a_standby_restarts_and_is_promoted_when_its_primary_is_gone(own_standby: Standby) -> None:
    own_standby.restart(crash=True)
    execute(own_standby.primary.url, "CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (1)")
    own_standby.catch_up()
    own_standby.primary.kill()
    own_standby.promote()
    execute(own_standby.url, "INSERT INTO kept VALUES (2)")
    assert execute(own_standby.url, "SELECT count(*) FROM kept")[0][0] == 2
    own_standby.primary.start()  # as a primary of its own: both take writes now
    execute(own_standby.primary.url, "INSERT INTO kept VALUES (3)")


def test_the_nodes_of_a_cluster_share_rows_and_no_named_locks(galera: tuple[str, ...]) -> None:
    execute(galera[0], "CREATE TABLE IF NOT EXISTS shared (id int PRIMARY KEY)")
    for number, url in enumerate(galera):
        execute(url, f"REPLACE INTO shared VALUES ({number})")
    counted = [
        execute(url, "SET SESSION wsrep_sync_wait = 1", "SELECT count(*) FROM shared")[0][0] for url in galera
    ]
    assert counted == [3, 3, 3]
    with ExitStack() as stack:
        engines = [create_engine(url_for(url, "pymysql"), poolclass=NullPool) for url in galera]
        clients = [stack.enter_context(engine.connect()) for engine in engines]
        assert [client.scalar(text("SELECT GET_LOCK('one', 0)")) for client in clients] == [1, 1, 1]


@pytest.mark.parametrize("name", ["postgresql", "mysql", "mariadb"])
def test_a_frozen_server_says_nothing_until_it_thaws(name: str, own_server: Own) -> None:
    server = own_server(name)
    server.freeze()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(SSL_REQUEST if name == "postgresql" else b"")  # the others speak first
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        server.thaw()
        client.settimeout(10)
        assert client.recv(1)


@pytest.mark.parametrize("name", ["postgresql", "mysql", "mariadb"])
def test_an_own_server_is_down_for_a_while_and_comes_back(name: str, own_server: Own) -> None:
    server = own_server(name)
    execute(server.url, "CREATE TABLE IF NOT EXISTS kept (id int)")
    before = server.pid
    restarted = threading.Thread(target=server.restart, kwargs={"down": 0.2})
    restarted.start()
    assert wait_until(lambda: not accepts(server.port))
    restarted.join()
    assert server.pid != before
    assert list(execute(server.url, "SELECT * FROM kept")) == []


def test_one_backend_freezes_alone(own_server: Own) -> None:
    server = own_server("postgresql")
    with psycopg.connect(server.url, autocommit=True) as held, psycopg.connect(server.url) as other:
        with pytest.raises(ValueError, match="no process of this server: 1"):
            server.freeze(1)
        server.freeze(held.info.backend_pid)
        assert other.execute("SELECT 1").fetchone() == (1,)
        held.pgconn.send_query(b"SELECT 2")
        held.pgconn.flush()
        answer = [held.pgconn.socket]
        assert select.select(answer, [], [], 0.2)[0] == []
        server.thaw()
        assert select.select(answer, [], [], 10)[0] == answer
        held.close()
