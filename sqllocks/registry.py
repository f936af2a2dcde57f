"""Providers, lockers and electors from a URL, and what other packages add to the schemes it may have."""

from __future__ import annotations

import inspect
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sqlalchemy import URL

from sqllocks.addresses import for_elector, for_locker, for_provider
from sqllocks.electors import AsyncSqlElector, SqlElector
from sqllocks.errors import BackendUnsupported, LockValidationError
from sqllocks.lockers import AsyncSqlLocker, SqlLocker
from sqllocks.process_memory import (
    AsyncProcessElector,
    AsyncProcessLocker,
    AsyncProcessLockProvider,
    ProcessElector,
    ProcessLocker,
    ProcessLockProvider,
)
from sqllocks.protocols import AsyncElector, AsyncLocker, AsyncLockProvider, Elector, Locker, LockProvider
from sqllocks.providers import AsyncSqlLockProvider, SqlLockProvider
from sqllocks.runtime.binding import parsed

__all__ = [
    "create_async_elector",
    "create_async_elector_auto",
    "create_async_locker",
    "create_async_provider",
    "create_elector",
    "create_elector_auto",
    "create_locker",
    "create_provider",
    "register_elector",
    "register_locker",
    "register_provider",
]

logger = logging.getLogger("sqllocks")

GROUP = "sqllocks.backends"
"""The entry points of packages that add schemes: each has the name of its scheme."""
VARIABLES = ("SQLLOCKS_ELECTOR_URL", "DLOCK_ELECTOR_URL")
"""Environment variables that name the elector of ``create_elector_auto``, the first that is set."""
_SCHEME = re.compile(r"[a-z]\w*", re.ASCII)


class _Schemes:
    """The schemes of one kind of object, and who makes them in either form."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._makers: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any] | None]] = {}

    def add(
        self, scheme: str, factory: Callable[..., Any] | None, async_factory: Callable[..., Any] | None
    ) -> None:
        name = _checked_scheme(scheme)
        for each in (factory, async_factory):
            if each is not None and not callable(each):
                raise TypeError(f"a factory must be callable, not {type(each).__name__}")
        if factory is None and async_factory is None:
            raise TypeError(f"the scheme {name!r} needs a factory, an async_factory, or both")
        with _mutex:
            if name in self._makers:
                raise LockValidationError(f"the scheme {name!r} is already registered for {self.kind}s")
            self._makers[name] = (factory, async_factory)

    def has(self, scheme: str) -> bool:
        """Return whether the scheme is known here, also from a package that was not loaded yet."""
        return scheme in self._makers or (_load(scheme) and scheme in self._makers)

    def make(self, url: str | URL, options: Mapping[str, Any], *, asyncio: bool) -> Any:
        if not isinstance(url, str | URL):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"an address must be a URL, not {type(url).__name__}")
        address = parsed(url)
        scheme = address.drivername.partition("+")[0].lower()
        if not self.has(scheme):
            raise BackendUnsupported(
                f"no {self.kind} is known for the scheme {scheme!r}; known are "
                f"{', '.join(sorted(self._makers))}, and what packages add by the entry-point group {GROUP!r}"
            )
        factory = self._makers[scheme][asyncio]
        if factory is None:
            form, other = ("asyncio", "blocking") if asyncio else ("blocking", "asyncio")
            raise BackendUnsupported(
                f"the {self.kind} of the scheme {scheme!r} has no {form} form, only {other}"
            )
        # None stands for the default, wherever an application's own settings come from
        return factory(address, **{name: value for name, value in options.items() if value is not None})


_mutex = threading.RLock()
_providers, _lockers, _electors = _Schemes("provider"), _Schemes("locker"), _Schemes("elector")
_loaded: set[EntryPoint] = set()


def create_provider(url: str | URL, /, **options: Any) -> LockProvider:
    """Return a provider for a URL: ``postgresql``, ``mysql``, ``mariadb``, ``sqlite``, ``memory`` or added.

    ``prefix`` in the URL's query is its namespace; the rest of the query reaches the driver. ``options``
    are as for ``SqlLockProvider``, and win over the URL. Nothing is asked of the database here.

    Raises ``LockValidationError``, also for a ``ttl`` in the URL (each lease has its own), and
    ``BackendUnsupported`` for an unknown scheme or a missing driver, never with the password.
    """
    made: LockProvider = _providers.make(url, options, asyncio=False)
    return made


def create_async_provider(url: str | URL, /, **options: Any) -> AsyncLockProvider:
    """Return a provider of the asyncio form for a URL; see ``create_provider``."""
    made: AsyncLockProvider = _providers.make(url, options, asyncio=True)
    return made


def create_locker(url: str | URL, /, **options: Any) -> Locker:
    """Return a locker for a URL: ``postgresql``, ``mysql``, ``mariadb``, ``memory`` or added.

    The URL's query may have ``prefix`` (of the names at the server), ``lease`` (or ``ttl``) and
    ``heartbeat`` as ``2s``, ``500ms`` or ``2``; a ``retry`` is checked and means nothing here. The rest of
    the query reaches the driver. A lease without a heartbeat has one of a third of it, at most 5 s.
    ``options`` are as for ``SqlLocker``, and win over the URL. Raises as ``create_provider`` does.
    """
    made: Locker = _lockers.make(url, options, asyncio=False)
    return made


def create_async_locker(url: str | URL, /, **options: Any) -> AsyncLocker:
    """Return a locker of the asyncio form for a URL; see ``create_locker``."""
    made: AsyncLocker = _lockers.make(url, options, asyncio=True)
    return made


def create_elector(url: str | URL, /, **options: Any) -> Elector:
    """Return an elector for a URL: ``postgresql``, ``mysql``, ``mariadb``, ``sqlite``, ``memory`` or added.

    The URL's query may have ``prefix`` (of the keys), ``lease`` (or ``ttl``), ``heartbeat`` and ``retry`` as
    ``2s``, ``500ms`` or ``2``. The rest of the query reaches the driver. A lease without a heartbeat has one
    of a third of it, at most 5 s. ``options`` are as for ``SqlElector``, and win over the URL. Raises as
    ``create_provider`` does.
    """
    made: Elector = _electors.make(url, options, asyncio=False)
    return made


def create_async_elector(url: str | URL, /, **options: Any) -> AsyncElector:
    """Return an elector of the asyncio form for a URL; see ``create_elector``."""
    made: AsyncElector = _electors.make(url, options, asyncio=True)
    return made


def create_elector_auto(**options: Any) -> Elector:
    """Return the elector that the environment names.

    ``SQLLOCKS_ELECTOR_URL`` decides, else ``DLOCK_ELECTOR_URL``; empty ones count as unset. Without them: in
    Kubernetes (``KUBERNETES_SERVICE_HOST`` is set) that of the scheme ``k8s``, or ``BackendUnsupported``
    where no package adds it; elsewhere the one memory elector of this process, with a warning, because it
    excludes no other process. Raises as ``create_elector`` does: there is no falling back.
    """
    return create_elector(_named_by_environment(), **options)


def create_async_elector_auto(**options: Any) -> AsyncElector:
    """Return the elector of the asyncio form that the environment names; see ``create_elector_auto``."""
    return create_async_elector(_named_by_environment(), **options)


def register_provider(
    scheme: str,
    factory: Callable[..., LockProvider] | None = None,
    *,
    async_factory: Callable[..., AsyncLockProvider] | None = None,
) -> None:
    """Let ``create_provider`` make providers of a scheme of your own.

    ``factory(url, **options)`` gets the parsed ``sqlalchemy.URL`` with its whole query, and what the caller
    gave beside it; ``async_factory`` the same for ``create_async_provider``. Raises ``LockValidationError``
    where the scheme is taken.
    """
    _providers.add(scheme, factory, async_factory)


def register_locker(
    scheme: str,
    factory: Callable[..., Locker] | None = None,
    *,
    async_factory: Callable[..., AsyncLocker] | None = None,
) -> None:
    """Let ``create_locker`` make lockers of a scheme of your own; see ``register_provider``."""
    _lockers.add(scheme, factory, async_factory)


def register_elector(
    scheme: str,
    factory: Callable[..., Elector] | None = None,
    *,
    async_factory: Callable[..., AsyncElector] | None = None,
) -> None:
    """Let ``create_elector`` make electors of a scheme of your own; see ``register_provider``."""
    _electors.add(scheme, factory, async_factory)


def _named_by_environment() -> str:
    for name in VARIABLES:
        if url := os.environ.get(name, "").strip():
            return url
    if not os.environ.get("KUBERNETES_SERVICE_HOST", "").strip():
        logger.warning(
            "%s is not set: leaders are elected in the memory of this process, which excludes no other "
            "process; set it to the URL of a database, or to memory:// where this is meant",
            VARIABLES[0],
        )
        return "memory://"
    if not _electors.has("k8s"):
        raise BackendUnsupported(
            f"this runs in Kubernetes, where an elector in memory would elect one leader in each pod, and no "
            f"k8s backend is registered: set {VARIABLES[0]} to the URL of a database"
        )
    return "k8s://"


def _load(scheme: str) -> bool:
    """Let the packages that name this scheme register it; return whether there was one to load."""
    with _mutex:
        found = [each for each in entry_points(group=GROUP, name=scheme) if each not in _loaded]
        for entry in found:
            # before: what it registered must not be refused as a duplicate of itself
            _loaded.add(entry)
            try:
                loaded: Any = entry.load()
                if callable(loaded):
                    loaded()
            except LockValidationError:
                raise
            except Exception as error:
                _loaded.discard(entry)
                raise BackendUnsupported(
                    f"the package that adds the scheme {scheme!r} cannot be loaded ({entry.value}): "
                    f"{type(error).__name__}: {error}"
                ) from error
    return bool(found)


def _checked_scheme(scheme: Any) -> str:
    if not isinstance(scheme, str):
        raise TypeError(f"a scheme must be a str, not {type(scheme).__name__}")
    if not _SCHEME.fullmatch(scheme.lower()):
        raise LockValidationError(
            f"a scheme must be letters, digits and '_', beginning with a letter, not {scheme!r:.40}"
        )
    return scheme.lower()


# -- the schemes of the library itself

Prepare = Callable[[URL, dict[str, Any]], tuple[URL, dict[str, Any]]]


def _of_database(form: Callable[..., Any], prepare: Prepare) -> Callable[..., Any]:
    def make(url: URL, **options: Any) -> Any:
        rest, arguments = prepare(url, options)
        return form(rest, **arguments)

    return make


def _of_memory(form: Callable[..., Any], twin: Callable[..., Any], prepare: Prepare) -> Callable[..., Any]:
    known, elsewhere = set(inspect.signature(form).parameters), set(inspect.signature(twin).parameters)

    def make(url: URL, **options: Any) -> Any:
        rest, arguments = prepare(url, options)
        if rest.render_as_string(hide_password=False) != "memory://":
            raise LockValidationError(
                "the address of memory is memory://, with no more than prefix, lease, heartbeat and retry"
            )
        # what only a database can make use of is not an error here, so that tests may run without one
        return form(**{name: value for name, value in arguments.items() if name not in elsewhere - known})

    return make


def _register_own() -> None:
    for scheme in ("postgresql", "postgres", "mysql", "mariadb", "sqlite"):
        _providers.add(
            scheme,
            _of_database(SqlLockProvider, for_provider),
            _of_database(AsyncSqlLockProvider, for_provider),
        )
        _lockers.add(scheme, _of_database(SqlLocker, for_locker), _of_database(AsyncSqlLocker, for_locker))
        _electors.add(
            scheme, _of_database(SqlElector, for_elector), _of_database(AsyncSqlElector, for_elector)
        )
    _providers.add(
        "memory",
        _of_memory(ProcessLockProvider, SqlLockProvider, for_provider),
        _of_memory(AsyncProcessLockProvider, AsyncSqlLockProvider, for_provider),
    )
    _lockers.add(
        "memory",
        _of_memory(ProcessLocker, SqlLocker, for_locker),
        _of_memory(AsyncProcessLocker, AsyncSqlLocker, for_locker),
    )
    _electors.add(
        "memory",
        _of_memory(ProcessElector, SqlElector, for_elector),
        _of_memory(AsyncProcessElector, AsyncSqlElector, for_elector),
    )


_register_own()
