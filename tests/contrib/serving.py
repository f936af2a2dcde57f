"""An application of the examples served by uvicorn, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.conformance.polling import until

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def served(application: str, **environment: str) -> Iterator[str]:
    """Serve ``module:app``; give its address once it answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(512)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "uvicorn", application, "--fd", str(listening.fileno())]
        process = subprocess.Popen(
            [*command, "--log-level", "warning"],
            cwd=ROOT,
            pass_fds=[listening.fileno()],
            env={**os.environ, **environment},
        )
    try:
        until(lambda: _answers(process, address), within=30, what="the server does not answer")
        yield address
    finally:
        process.terminate()
        try:
            assert process.wait(15) in (0, -15)
        finally:
            process.kill()
            process.wait()


def _answers(process: subprocess.Popen[bytes], address: str) -> bool:
    assert process.poll() is None, "the server ended"
    with suppress(httpx.TransportError):
        return httpx.get(address, timeout=5).status_code == 404
    return False
