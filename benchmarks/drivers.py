"""The drivers in their plainest use: one connection, and one statement on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import aiomysql
import aiosqlite
import asyncpg
import psycopg
import pymysql
from sqlalchemy import URL, make_url

from benchmarks.contenders import Place

Told = tuple[Sequence[Any], int]
"""Rows and row count; the count is -1 where the driver did not tell it."""
BUSY_SECONDS = 30.0


@dataclass(frozen=True)
class Driver:
    """How a blocking driver connects and runs a statement."""

    name: str
    style: str
    connect: Callable[[Place], Any]
    run: Callable[[Any, str, Sequence[Any]], Told]


@dataclass(frozen=True)
class AsyncDriver:
    """How an asyncio driver does."""

    name: str
    style: str
    connect: Callable[[Place], Awaitable[Any]]
    run: Callable[[Any, str, Sequence[Any]], Awaitable[Told]]


def _psycopg(place: Place) -> Any:
    return psycopg.connect(place.url, autocommit=True)


def _run_psycopg(connection: Any, sql: str, values: Sequence[Any]) -> Told:
    cursor = connection.execute(sql, values)
    return (cursor.fetchall() if cursor.description else ()), cursor.rowcount


async def _async_psycopg(place: Place) -> Any:
    return await psycopg.AsyncConnection.connect(place.url, autocommit=True)


async def _run_async_psycopg(connection: Any, sql: str, values: Sequence[Any]) -> Told:
    cursor = await connection.execute(sql, values)
    return (await cursor.fetchall() if cursor.description else ()), cursor.rowcount


async def _asyncpg(place: Place) -> Any:
    return await asyncpg.connect(place.url)


async def _run_asyncpg(connection: Any, sql: str, values: Sequence[Any]) -> Told:
    return await connection.fetch(sql, *values), -1


def _of(url: URL, database: str) -> dict[str, Any]:
    return {
        "host": url.host,
        "port": url.port,
        "user": url.username,
        "password": url.password,
        database: url.database,
        "autocommit": True,
        # gap locks of REPEATABLE READ deadlock where keys are new
        "init_command": "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    }


def _pymysql(place: Place) -> Any:
    return pymysql.connect(**_of(make_url(place.url), "database"))


def _run_cursor(connection: Any, sql: str, values: Sequence[Any]) -> Told:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return (cursor.fetchall() if cursor.description else ()), cursor.rowcount


async def _aiomysql(place: Place) -> Any:
    return await aiomysql.connect(**_of(make_url(place.url), "db"))


async def _asyncmy(place: Place) -> Any:
    # its C code is not built for every Python
    return await import_module("asyncmy").connect(**_of(make_url(place.url), "db"))


async def _run_async_cursor(connection: Any, sql: str, values: Sequence[Any]) -> Told:
    async with connection.cursor() as cursor:
        await cursor.execute(sql, values)
        return (await cursor.fetchall() if cursor.description else ()), cursor.rowcount


def _sqlite3(place: Place) -> Any:
    path = make_url(place.url).database
    assert path is not None
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _run_sqlite3(connection: Any, sql: str, values: Sequence[Any]) -> Told:
    cursor = connection.execute(sql, values)
    return cursor.fetchall(), cursor.rowcount


async def _aiosqlite(place: Place) -> Any:
    path = make_url(place.url).database
    assert path is not None
    return await aiosqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


async def _run_aiosqlite(connection: Any, sql: str, values: Sequence[Any]) -> Told:
    async with connection.execute(sql, values) as cursor:
        return list(await cursor.fetchall()), cursor.rowcount


_PYMYSQL = Driver("pymysql", "%s", _pymysql, _run_cursor)
_AIOMYSQL = AsyncDriver("aiomysql", "%s", _aiomysql, _run_async_cursor)
_ASYNCMY = AsyncDriver("asyncmy", "%s", _asyncmy, _run_async_cursor)

BLOCKING: dict[str, Sequence[Driver]] = {
    "postgresql": [Driver("psycopg", "%s", _psycopg, _run_psycopg)],
    "mysql": [_PYMYSQL],
    "mariadb": [_PYMYSQL],
    "sqlite": [Driver("pysqlite", "?", _sqlite3, _run_sqlite3)],
}
ASYNCIO: dict[str, Sequence[AsyncDriver]] = {
    "postgresql": [
        AsyncDriver("asyncpg", "$", _asyncpg, _run_asyncpg),
        AsyncDriver("psycopg", "%s", _async_psycopg, _run_async_psycopg),
    ],
    "mysql": [_AIOMYSQL, _ASYNCMY],
    "mariadb": [_AIOMYSQL, _ASYNCMY],
    "sqlite": [AsyncDriver("aiosqlite", "?", _aiosqlite, _run_aiosqlite)],
}
