"""Section H: providers, lockers and electors from a URL, and the schemes that other packages add."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, make_url, text

from sqllocks import (
    AsyncMemoryElector,
    AsyncMemoryLocker,
    AsyncMemoryLockProvider,
    AsyncSqlElector,
    AsyncSqlLocker,
    AsyncSqlLockProvider,
    BackendUnavailable,
    BackendUnsupported,
    LockValidationError,
    MemoryElector,
    MemoryLocker,
    MemoryLockProvider,
    SqlElector,
    SqlLocker,
    SqlLockProvider,
    Term,
    create_async_elector,
    create_async_locker,
    create_async_provider,
    create_elector,
    create_locker,
    create_provider,
    register_elector,
    register_locker,
    register_provider,
)
from sqllocks.addresses import for_elector, for_locker, for_provider
from sqllocks.policy import HEARTBEAT, checked_lease
from tests.conformance.polling import until
from tests.servers import fresh_database, require_server

REGISTER: list[Callable[..., None]] = [register_provider, register_locker, register_elector]
CREATE: dict[Callable[..., None], tuple[Callable[..., Any], Callable[..., Any]]] = {
    register_provider: (create_provider, create_async_provider),
    register_locker: (create_locker, create_async_locker),
    register_elector: (create_elector, create_async_elector),
}
EVERY = [create for pair in CREATE.values() for create in pair]
WITH_TIMES = [create_locker, create_async_locker, create_elector, create_async_elector]
PASSWORD = "p%40ss-word"
_numbers = iter(range(1_000_000))


def scheme() -> str:
    """Return a scheme that was never registered."""
    return f"fake{next(_numbers)}"


# -- registering


@pytest.mark.parametrize("register", REGISTER)
def test_c083_c084_a_scheme_twice_is_refused_and_the_first_stays(register: Callable[..., None]) -> None:
    name, (create, _) = scheme(), CREATE[register]
    register(name, lambda url: "first")
    with pytest.raises(LockValidationError, match=name):
        register(name, lambda url: "second")
    with pytest.raises(LockValidationError, match=name):
        register(name.upper(), lambda url: "second")
    assert create(f"{name}://host") == "first"
    with pytest.raises(LockValidationError, match="postgres"):
        register("postgres", lambda url: "mine")


def test_c084_one_scheme_may_be_registered_for_everything() -> None:
    name = scheme()
    for number, register in enumerate(REGISTER):
        register(name, lambda url, number=number: number)
    assert [CREATE[register][0](f"{name}://") for register in REGISTER] == [0, 1, 2]


@pytest.mark.parametrize("register", REGISTER)
def test_what_cannot_be_registered(register: Callable[..., None]) -> None:
    for wrong in ("", "with-hyphen", "postgresql+own", "1st", "a:b"):
        with pytest.raises(LockValidationError):
            register(wrong, lambda url: None)
    for arguments in (("some", "text"), (b"some", print), ("some",)):
        with pytest.raises(TypeError):
            register(*arguments)


@pytest.mark.parametrize("create", EVERY)
def test_c085_an_unknown_scheme_is_named(create: Callable[..., Any]) -> None:
    with pytest.raises(BackendUnsupported, match="nosuchscheme") as caught:
        create(f"nosuchscheme://me:{PASSWORD}@host/db")
    assert "postgresql" in caught.value.message
    assert "ss-word" not in repr(caught.value)


@pytest.mark.parametrize("create", EVERY)
@pytest.mark.parametrize(
    "address",
    [f"postgresql://me:{PASSWORD}@host:port/db", f"nothing {PASSWORD}", "", f"://me:{PASSWORD}@host"],
)
def test_c085_what_is_no_url_is_refused_without_its_password(
    create: Callable[..., Any], address: str
) -> None:
    with pytest.raises(LockValidationError) as caught:
        create(address)
    assert "ss-word" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"


@pytest.mark.parametrize("create", EVERY)
def test_an_engine_is_not_an_address(create: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="Engine"):
        create(create_engine("sqlite://"))


def test_c086_a_factory_gets_the_parsed_url_and_the_options() -> None:
    seen: list[tuple[URL, dict[str, Any]]] = []
    for register in REGISTER:
        name = scheme()

        def blocking(url: URL, **options: Any) -> str:
            seen.append((url, options))
            return "blocking"

        def awaiting(url: URL, **options: Any) -> str:
            seen.append((url, options))
            return "asyncio"

        register(name, blocking, async_factory=awaiting)
        create, create_async = CREATE[register]
        assert (
            create(f"{name}+tls://me:secret@host:81/path?a=1&lease=4s", table="t", retry=None) == "blocking"
        )
        assert create_async(make_url(f"{name}://host")) == "asyncio"
    for url, options in seen[::2]:
        assert (url.host, url.port, url.database, url.password) == ("host", 81, "path", "secret")
        assert dict(url.query) == {"a": "1", "lease": "4s"}
        assert options == {"table": "t"}


@pytest.mark.parametrize("register", REGISTER)
def test_a_form_that_was_not_registered_is_named(register: Callable[..., None]) -> None:
    blocking, awaiting = scheme(), scheme()
    register(blocking, lambda url: None)
    register(awaiting, async_factory=lambda url: None)
    create, create_async = CREATE[register]
    with pytest.raises(BackendUnsupported, match=f"{blocking}.*asyncio"):
        create_async(f"{blocking}://")
    with pytest.raises(BackendUnsupported, match=f"{awaiting}.*blocking"):
        create(f"{awaiting}://")


# -- what a URL makes

MADE = [
    ("postgres", "+psycopg", "+asyncpg"),
    ("postgresql", "+psycopg", "+psycopg"),
    ("mysql", "+pymysql", "+aiomysql"),
    ("mariadb", "+pymysql", "+aiomysql"),
]


@pytest.mark.parametrize(("name", "blocking", "awaiting"), MADE)
@pytest.mark.parametrize("driver", [False, True])
def test_c087_every_server_gives_all_three(name: str, blocking: str, awaiting: str, driver: bool) -> None:
    # nothing listens there, and nothing is asked
    tails = [f"{each if driver else ''}://me:{PASSWORD}@127.0.0.1:1/db" for each in (blocking, awaiting)]
    forms = [
        (SqlLockProvider, AsyncSqlLockProvider),
        (SqlLocker, AsyncSqlLocker),
        (SqlElector, AsyncSqlElector),
    ]
    for pair, (create, create_async) in zip(forms, CREATE.values(), strict=True):
        with create(name + tails[0]) as made:
            assert type(made) is pair[0]
        assert type(create_async(name + tails[1])) is pair[1]


def test_sqlite_and_memory(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'locks.db'}"
    assert isinstance(create_provider(address), SqlLockProvider)
    assert isinstance(create_elector(address), SqlElector)
    with pytest.raises(BackendUnsupported, match="SqlLockProvider"):
        create_locker(address)
    assert isinstance(create_provider("memory://"), MemoryLockProvider)
    assert isinstance(create_locker("memory://"), MemoryLocker)
    assert isinstance(create_elector("memory://"), MemoryElector)
    assert isinstance(create_async_provider("memory://"), AsyncMemoryLockProvider)
    assert isinstance(create_async_locker("memory://"), AsyncMemoryLocker)
    assert isinstance(create_async_elector("memory://"), AsyncMemoryElector)
    for wrong in ("memory://host", "memory:///path", "memory://?table=t"):
        with pytest.raises(LockValidationError, match="memory://"):
            create_provider(wrong)


@pytest.mark.parametrize("create", EVERY)
def test_a_driver_of_the_other_form_is_refused(create: Callable[..., Any]) -> None:
    other = "postgresql+psycopg2" if "async" in create.__name__ else "postgresql+asyncpg"
    with pytest.raises(LockValidationError, match="driver"):
        create(f"{other}://me:{PASSWORD}@127.0.0.1/db")


# -- the query


@pytest.mark.parametrize("prepare", [for_locker, for_elector])
def test_c088_c089_what_is_the_librarys_is_taken_out_and_the_rest_stays(prepare: Callable[..., Any]) -> None:
    address = make_url("mysql://h/db?prefix=p%3A&charset=utf8&ttl=30s&retry=2s&heartbeat=500ms&a=1&a=2")
    rest, said = prepare(address, {"table": "t"})
    assert rest == make_url("mysql://h/db?charset=utf8&a=1&a=2")
    retry = {"retry": 2.0} if prepare is for_elector else {}
    assert said == {"prefix": "p:", "lease": 30.0, "heartbeat": 0.5, "table": "t", **retry}


def test_c088_absent_ones_have_their_defaults() -> None:
    address = make_url("postgresql://h/db")
    assert for_elector(address, {}) == (address, {})
    # a short lease alone has a heartbeat that goes with it
    assert for_elector(make_url("postgresql://h/db?lease=6"), {})[1] == {"lease": 6.0}
    for lease, heartbeat in ((6, 2.0), (0.7, 0.7 / 3), (15, 5.0), (3600, 5.0), (timedelta(seconds=3), 1.0)):
        assert checked_lease(lease, None)[1] == checked_lease(lease, HEARTBEAT)[1] == heartbeat


@pytest.mark.parametrize(
    "form",
    [
        *(SqlLocker, AsyncSqlLocker, SqlElector, AsyncSqlElector, create_locker, create_elector),
        *(MemoryLocker, AsyncMemoryLocker, MemoryElector, AsyncMemoryElector),
    ],
)
def test_a_short_lease_alone_will_do_and_a_heartbeat_that_is_too_long_will_not(form: Any) -> None:
    address = () if "Memory" in form.__name__ else ("postgresql://me@127.0.0.1:1/db",)
    form(*address, lease=6)
    form(*address, lease=6, heartbeat=None)
    with pytest.raises(LockValidationError, match="heartbeat"):
        form(*address, lease=6, heartbeat=5)


def test_an_option_wins_over_the_url_and_none_does_not() -> None:
    address = make_url("postgresql://h/db?lease=30s&retry=7")
    assert for_elector(address, {"lease": 60})[1] == {"lease": 60, "retry": 7.0}
    with pytest.raises(LockValidationError, match="retry"):
        create_elector("postgresql://h/db?retry=7", retry=0)
    with create_elector("postgresql://h/db?retry=7", retry=None, lease=None, on_error=None):
        """The default of each is valid."""


@pytest.mark.parametrize("create", WITH_TIMES)
@pytest.mark.parametrize(
    "query",
    [
        *("retry=abc", "retry=0", "retry=-1s", "retry=2%20s", "heartbeat=0", "heartbeat=5d"),
        *("lease=0s", "lease=inf", "lease=1e9", "ttl=nan", "ttl=31000000", "lease=2s&heartbeat=1s"),
        *("lease=20&ttl=20", "retry=1&retry=2"),
    ],
)
def test_c090_a_wrong_time_is_refused_before_any_sql(create: Callable[..., Any], query: str) -> None:
    name = query.partition("=")[0]
    with pytest.raises(LockValidationError, match="lease" if name == "ttl" and "nan" not in query else name):
        create(f"postgresql://me@127.0.0.1:1/db?{query}")


@pytest.mark.parametrize("create", [create_provider, create_async_provider])
def test_c091_a_provider_has_no_default_ttl(create: Callable[..., Any]) -> None:
    for name in ("ttl", "lease"):
        with pytest.raises(LockValidationError, match=f"^a {name} in the URL .* no default ttl"):
            create(f"postgresql://h/db?{name}=30s")
    for query, message in (("retry=2s", "retry in the URL has"), ("heartbeat=1s&retry=2", "in the URL have")):
        with pytest.raises(LockValidationError, match=message):
            create(f"postgresql://h/db?{query}")
    rest, said = for_provider(make_url("postgresql://h/db?prefix=p%3A&sslmode=disable"), {})
    assert (rest, said) == (make_url("postgresql://h/db?sslmode=disable"), {"namespace": "p:"})


# -- on servers


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[str], URL]]:
    """Return a database with a lock table on each server that is asked for."""
    known: dict[str, URL] = {}
    with ExitStack() as stack:

        def give(server: str) -> URL:
            require_server(server)
            if server not in known:
                known[server] = make_url(stack.enter_context(fresh_database(server)))
                with SqlLockProvider(known[server]) as locks:
                    locks.create_table()
            return known[server]

        yield give


def led(elector: Any, key: str) -> Term:
    """Lead once, and return the term that has ended."""
    stop, terms = threading.Event(), list[Term]()

    def lead(term: Term) -> None:
        terms.append(term)
        stop.set()

    elector.run(key, lead, stop=stop)
    return terms[0]


@pytest.mark.parametrize("server", ["postgresql", "mysql", "mariadb"])
def test_c087_c089_a_url_with_everything_works(databases: Callable[[str], URL], server: str) -> None:
    address = databases(server).update_query_dict({"prefix": "p:", "lease": "20s", "retry": "100ms"})
    with create_locker(address) as locker, locker.lock("some", wait=0) as lock:
        info = locker.inspect("some")
        assert info is not None
        assert info.acquired_at is not None
        assert info.expires_at is not None
        assert info.fencing_token == lock.fencing_token
        # both are of the grant, told apart by microseconds at most
        assert abs(info.expires_at - info.acquired_at - timedelta(seconds=20)) < timedelta(seconds=3)
    with create_elector(address) as elector:
        led(elector, "some")
    plain = databases(server)
    with create_provider(plain) as every, create_provider(plain.update_query_dict({"prefix": "p:"})) as part:
        assert {info.lock_key for info in every.list_locks()} >= {"some", "p:some"}
        assert [info.lock_key for info in part.list_locks()] == ["some"]


def test_c089_the_rest_of_the_query_reaches_the_driver(databases: Callable[[str], URL]) -> None:
    address = databases("postgresql").update_query_dict(
        {"application_name": "named-by-the-url", "heartbeat": "2s", "prefix": "x"}
    )
    asking = create_engine(databases("postgresql").set(drivername="postgresql+psycopg"))
    with create_locker(address) as locker, locker.lock("named", wait=0):
        assert sessions(asking, "named-by-the-url") >= 1
    # made from the URL, so closed with the locker
    until(lambda: sessions(asking, "named-by-the-url") == 0)
    asking.dispose()


def sessions(engine: Engine, name: str) -> int:
    """Return how many sessions have an application name."""
    with engine.connect() as connection:
        counted = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
        return int(connection.execute(counted, {"name": name}).scalar_one())


def test_c093_an_engine_that_was_passed_in_lives_on(databases: Callable[[str], URL]) -> None:
    engine = create_engine(databases("postgresql").set(drivername="postgresql+psycopg"), pool_size=1)
    with engine.connect() as connection:
        pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
    for made in (SqlLocker(engine), SqlElector(engine)):
        made.close()
    with engine.connect() as connection:  # the same one, from the same pool
        assert connection.connection.driver_connection.info.backend_pid == pid  # type: ignore[union-attr]
    engine.dispose()


@pytest.mark.parametrize("create", [create_provider, create_locker, create_elector])
def test_c092_c094_neither_password_nor_key_shows(
    create: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    password = "p@ss:w/rd#1?&=+ %"
    address = URL.create("postgresql", "me", password, "127.0.0.1", 1, "db").update_query_dict(
        {"prefix": "p:"}
    )
    caplog.set_level(logging.DEBUG)
    made = create(address.render_as_string(hide_password=False))
    ask = getattr(made, "locked", None) or getattr(made, "try_lock", None) or made.leader
    with pytest.raises(BackendUnavailable) as caught:
        ask("key")
    made.close(timeout=0)
    said = f"{caught.value!r} {caught.value.__cause__!r} {made!r} {caplog.text}"
    assert "w/rd" not in said
    assert "w%2Frd" not in said


# -- memory


def test_everything_that_memory_urls_make_is_one_memory() -> None:
    key = f"one-memory-{next(_numbers)}"
    with create_provider("memory://") as locks, create_locker("memory://") as locker:
        with locks.hold(key, ttl=60):
            assert locker.try_lock(key) is None
        with locker.lock(key, wait=0) as lock:
            assert not locks.acquire(key, ttl=60)
            assert lock.fencing_token is not None
        with create_elector("memory://?prefix=", namespace="other:") as elector:
            assert led(elector, key).key == key
        with create_provider("memory://?prefix=other%3A") as other:
            info = other.inspect(f"election:{key}")
            assert info is not None
            assert info.kind == "session"
        assert locks.inspect(f"election:{key}") is None


def test_options_that_only_a_database_needs_are_no_error_in_memory() -> None:
    with create_elector("memory://?retry=100ms", table="locks", strategy="lease"):
        """Made."""
    with pytest.raises(TypeError, match="tabel"):
        create_elector("memory://", tabel="locks")


# -- packages

PACKAGE = """
from sqllocks import MemoryElector, MemoryLockProvider, register_elector, register_locker, register_provider

def register():
    register_provider("{scheme}", lambda url, **options: MemoryLockProvider())
    register_elector("{scheme}", lambda url, **options: MemoryElector(prefix=url.host + ":"))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that installs a package of somebody else's, as pip leaves it on the path."""

    def install(source: str = PACKAGE, *, value: str = "{module}:register") -> str:
        name = scheme()
        module = f"package_of_{name}"
        (tmp_path / f"{module}.py").write_text(source.format(scheme=name))
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        line = f"{name} = {value.format(module=module)}"
        (about / "entry_points.txt").write_text(f"[sqllocks.backends]\n{line}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        return name

    return install


def test_a_package_adds_a_scheme_by_its_entry_point(package: Callable[..., str]) -> None:
    name = package()
    with create_elector(f"{name}://somewhere") as elector:
        assert led(elector, "some").key == "some"
        info = elector.leader("some")
        assert info is None
    assert isinstance(create_provider(f"{name}://"), MemoryLockProvider)
    with pytest.raises(BackendUnsupported, match=name):
        create_locker(f"{name}://")
    with pytest.raises(LockValidationError, match=name):
        register_elector(name, lambda url: None)  # type: ignore[arg-type, return-value]


def test_a_module_may_register_when_it_is_imported(package: Callable[..., str]) -> None:
    source = "import sqllocks\nsqllocks.register_locker('{scheme}', lambda url: url.host)\n"
    name = package(source, value="{module}")
    locker: Any = create_locker(f"{name}://host")
    assert locker == "host"


def test_a_package_that_cannot_be_loaded_is_named(package: Callable[..., str]) -> None:
    name = package("raise RuntimeError('broken')\n")
    for _ in range(2):
        with pytest.raises(BackendUnsupported, match=f"{name}.*broken"):
            create_elector(f"{name}://")


def test_nobody_is_loaded_whose_scheme_is_not_asked_for(package: Callable[..., str]) -> None:
    package("raise RuntimeError('broken')\n")
    with pytest.raises(BackendUnsupported, match="other"):
        create_elector("other://")
    create_elector("memory://").close()
