"""Statements compiled once for a driver, and driver errors as faults."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from sqlalchemy import URL
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sqllocks.dialects import dialect_class
from sqllocks.dialects.base import Fault, FaultKind, Parameters, Statement

__all__ = ["Compiler", "Faults"]

Arguments = Any
"""Positional or named parameters, as the driver's paramstyle has it."""


Ordered = Callable[[Parameters], Arguments]

_Compiled = tuple[str, Ordered]
# for all providers of a process on servers of the same kind and version
_compiled: dict[Hashable, dict[Statement, _Compiled]] = {}


class Compiler:
    """Compiles each statement once; what is left per call is to put the parameters in order."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._texts: dict[Statement, _Compiled] | None = None

    def __call__(self, statement: Statement, parameters: Parameters) -> tuple[str, Arguments]:
        """Return the SQL text and the arguments for the driver."""
        if self._texts is None:  # not before: the dialect learns from the first connection who the server is
            self._texts = _compiled.setdefault(_kind_of(self._dialect), {})
        found = self._texts.get(statement)
        if found is None:
            found = self._texts[statement] = self._compile(statement)
        sql, ordered = found
        return sql, ordered(parameters)

    def _compile(self, statement: Statement) -> _Compiled:
        compiled: Any = statement.clause.compile(dialect=self._dialect)
        given: dict[str, Any] = getattr(compiled, "params", None) or {}  # DDL has none
        fixed = {name: value for name, value in given.items() if value is not None}
        if not self._dialect.positional:
            return str(compiled), partial(_named, tuple(given), fixed)
        order: tuple[str, ...] = tuple(getattr(compiled, "positiontup", None) or ())
        if len(order) > 1 and fixed.keys().isdisjoint(order):
            return str(compiled), itemgetter(*order)  # the way of nearly every call
        return str(compiled), partial(_positional, order, fixed)


def _named(names: Sequence[str], fixed: dict[str, Any], parameters: Parameters) -> Arguments:
    return {name: parameters[name] if name in parameters else fixed.get(name) for name in names}


def _positional(order: Sequence[str], fixed: dict[str, Any], parameters: Parameters) -> Arguments:
    return tuple([parameters[name] if name in parameters else fixed.get(name) for name in order])


def _kind_of(dialect: Any) -> Hashable:
    mariadb, quote = getattr(dialect, "is_mariadb", False), dialect.identifier_preparer.initial_quote
    version = tuple(dialect.server_version_info or ())
    return dialect.name, dialect.driver, dialect.paramstyle, mariadb, quote, version


class Faults:
    """Turns whatever a driver raises into a ``Fault``, without the password."""

    def __init__(self, url: URL) -> None:
        self._classify = dialect_class(url.get_backend_name()).fault_kind
        self._secret = url.password
        self._where = url.set(query={}).render_as_string(hide_password=True)

    def fault(self, error: BaseException, *, sent: bool) -> Fault:
        """Return the fault for a driver's error; ``sent`` is false while a connection is opened."""
        driver_error = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        kind = self._kind(error, driver_error)
        # a database that is not there is as far away as its server
        if not sent and kind in (FaultKind.OTHER, FaultKind.FORBIDDEN, FaultKind.NO_SCHEMA):
            kind = FaultKind.GONE
        text = str(driver_error).strip()
        lines = text.splitlines() or [""]
        message = self._clean(f"{type(driver_error).__name__}: {lines[0]:.300}".rstrip(": "))
        if not sent:
            message = f"cannot connect to {self._where}: {message}"
        return Fault(kind, message, sent=sent)

    def _kind(self, error: BaseException, driver_error: BaseException) -> FaultKind:
        for candidate in (driver_error, driver_error.__cause__):
            kind = self._classify(candidate) if candidate is not None else None
            if kind is not None:
                return kind
        if isinstance(error, OSError | EOFError | PoolTimeout):
            return FaultKind.GONE
        # PEP 249 drivers without a code in the error: the connection, not the statement
        if type(driver_error).__name__ in {"OperationalError", "InterfaceError"}:
            return FaultKind.GONE
        return FaultKind.OTHER

    def _clean(self, text: str) -> str:
        return text.replace(str(self._secret), "***") if self._secret else text
