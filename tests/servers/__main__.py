"""`python -m tests.servers up [NAME ...]` and `python -m tests.servers check [NAME ...]`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from types import FrameType

from tests.servers import NAMES, ON_DEMAND, Missing, Server, provide, variable


def main(arguments: list[str] | None = None) -> int:
    """Start the servers and tell what they are, or keep them until a signal; return the exit code."""
    known = (*NAMES, *ON_DEMAND)
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("command", choices=("up", "check"))
    parser.add_argument("names", nargs="*", default=list(NAMES), metavar="NAME", help=", ".join(known))
    given = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    found: dict[str, Server | Missing] = {}
    try:
        found = provide(given.names)
        _tell(found, sys.stderr.write if given.command == "up" else sys.stdout.write)
        if given.command == "up":
            _export(found)
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        for server in reversed(found.values()):
            if isinstance(server, Server):
                server.close()
    return 1 if any(isinstance(server, Missing) for server in found.values()) else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell(found: dict[str, Server | Missing], write: object) -> None:
    assert callable(write)
    for name, server in found.items():
        if isinstance(server, Missing):
            write(f"{name}: missing: {server.reason}\n")
        else:
            write(f"{name}: {server.version} ({server.source})\n")


def _export(found: dict[str, Server | Missing]) -> None:
    for name, server in found.items():
        if isinstance(server, Server):
            sys.stdout.write(f"export {variable(name)}={shlex.quote(' '.join(server.urls))}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
