"""All questions, one after the other, on servers of this run's own.

    python -m benchmarks.run [--quick] [--only QUESTION …] [--readme]

Writes JSON, a Markdown table and SVG plots into `benchmarks/results/`, or `benchmarks/results/quick/`.
`--readme` also puts the short tables between the markers of README.md; with `--report` nothing is measured
and the last JSON is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import peers, plots, report
from benchmarks.redis_server import start_redis
from benchmarks.turns import Row
from tests.servers import Server, Unavailable, launch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LIMIT = 690.0
QUICK_LIMIT = 120.0
"""For a busy machine; else it takes less than a minute."""
# the contenders are open side by side, and each peer has a connection for each lock it holds
SETTINGS = {
    "postgresql": {"max_connections": "600", "shared_buffers": "128MB"},
    "mysql": {"max-connections": "600"},
    "mariadb": {"max-connections": "600"},
}


@dataclass(frozen=True)
class Question:
    """A module, where it is asked, and where in a quick run."""

    module: str
    servers: tuple[str, ...]
    quick: tuple[str, ...] = ("postgresql",)
    redis: bool = True


QUESTIONS = (
    Question("callers", ("postgresql", "mysql", "mariadb", "sqlite"), ("postgresql", "mariadb")),
    Question("sqlite_processes", ("sqlite",), ("sqlite",)),
    Question("held", ("postgresql", "mysql", "mariadb", "sqlite"), redis=False),
    Question("table", ("postgresql", "mysql", "mariadb", "sqlite"), redis=False),
    Question("hand_over_latency", ("postgresql", "mysql", "sqlite")),
    Question("keys", ("postgresql", "mariadb")),
    Question("processes", ("postgresql", "mariadb")),
)
OTHERS = {
    "session_locks": (
        "Session locks",
        ["postgresql", "mysql", "mariadb", "--rounds", "10", "--seconds", "2"],
    ),
}
"""Modules that start their own servers and print Markdown of their own. `benchmarks.elections`, which kills
and restarts servers for minutes, is run by itself."""


class Run:
    """One run: its servers, its rows and its time."""

    def __init__(self, *, quick: bool, only: list[str]) -> None:
        self.quick = quick
        self.only = only
        self.rows: list[dict[str, Any]] = []
        self.others: dict[str, str] = {}
        self.until = time.monotonic() + (QUICK_LIMIT if quick else LIMIT)

    def go(self, urls: dict[str, str]) -> None:
        """Ask every question."""
        for question in QUESTIONS:
            if self._wanted(question.module):
                for server in question.quick if self.quick else question.servers:
                    if server in urls:
                        self._ask(question, server, urls)
        for module, (title, arguments) in OTHERS.items():
            if self._wanted(module) and (ROOT / "benchmarks" / f"{module}.py").exists() and not self.quick:
                self._ask_other(module, title, arguments)

    def _wanted(self, module: str) -> bool:
        return not self.only or module in self.only

    def _ask(self, question: Question, server: str, urls: dict[str, str]) -> None:
        command = [sys.executable, "-m", f"benchmarks.{question.module}", f"{server}={urls[server]}"]
        command += ["--quick"] if self.quick else []
        # one answer of Redis is enough
        command += (
            ["--redis", urls["redis"]]
            if question.redis and "redis" in urls and server == "postgresql"
            else []
        )
        began = time.monotonic()
        told, failure = self._output(command)
        for line in told.splitlines():
            with contextlib.suppress(ValueError):  # a line that was cut off
                self.rows.append(json.loads(line))
        if failure:
            self.rows.append(_failed(question.module, server, failure))
        print(f"{question.module} {server}: {time.monotonic() - began:.0f} s {failure}", flush=True)

    def _ask_other(self, module: str, title: str, arguments: list[str]) -> None:
        began = time.monotonic()
        told, failure = self._output([sys.executable, "-m", f"benchmarks.{module}", *arguments])
        self.others[title] = told + (f"\n\n{failure}" if failure else "")
        print(f"{module}: {time.monotonic() - began:.0f} s {failure}", flush=True)

    def _output(self, command: list[str]) -> tuple[str, str]:
        left = self.until - time.monotonic()
        if left < 1:
            return "", "left out: no time was left"
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            told, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
            return told, "cut short: no time was left"
        return told, "" if process.returncode == 0 else f"ended with {process.returncode}"


def _failed(module: str, server: str, why: str) -> dict[str, Any]:
    return Row(module, server, "", module, "", "", note=f"failed: {why}").as_json()


@contextlib.contextmanager
def servers(names: Sequence[str]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Start what can be had, with durable settings; give URLs and versions, or why there is none."""
    urls: dict[str, str] = {}
    versions: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for name in (*names, "redis"):
            try:
                server: Server = (
                    start_redis()
                    if name == "redis"
                    else launch(name, durable=True, settings=SETTINGS.get(name, {}))
                )
            except Unavailable as error:
                versions[name] = f"missing ({str(error).splitlines()[0]})"
                print(f"{name}: missing: {error}", file=sys.stderr)
                continue
            stack.callback(server.close)
            urls[name], versions[name] = server.url, server.version
        yield urls, versions


def measured(*, quick: bool, only: list[str]) -> dict[str, Any]:
    """Start the servers, ask everything, and return what goes into the JSON file."""
    run = Run(quick=quick, only=only)
    asked = {name for each in QUESTIONS for name in (each.quick if quick else each.servers)}
    with servers(sorted(asked)) as (urls, versions):
        run.go(urls)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "servers": versions,
        "peers": peers.versions(),
        "rows": run.rows,
        "others": run.others,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], metavar="QUESTION")
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    folder = RESULTS / "quick" if arguments.quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "results.json"
    if not arguments.report:
        result = measured(quick=arguments.quick, only=arguments.only)
        data.write_text(json.dumps(result, indent=1) + "\n")
    result = json.loads(data.read_text())
    (folder / "results.md").write_text(report.markdown(result))
    drawn = plots.draw(result["rows"], folder)
    if arguments.readme:
        shown = [path.relative_to(ROOT) for path in drawn]
        report.refresh(ROOT / "README.md", report.for_readme(result, shown))
    print(report.targets(result["rows"]))


if __name__ == "__main__":
    main()
