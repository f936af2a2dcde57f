"""The sockets of connections whose end has to be seen at once, without a question to the server.

The process that serves a session closes its socket when the session ends, so a socket that turns readable
while nothing was asked is news. What is watched is a duplicate of the driver's socket. Where a driver does
not give the number of its socket, it is found by its address, which the server tells.
"""

from __future__ import annotations

import asyncio
import enum
import os
import selectors
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["AsyncioWatch", "BlockingWatch", "Sign", "close", "peek", "shut", "socket_of"]

_FOLDER = "/dev/fd"
Look = Callable[[], float | None]
"""Looks at a readable socket; returns the seconds until it is watched again, ``None`` for never."""


class Sign(enum.Enum):
    """What a socket shows."""

    NOTHING = "nothing has arrived"
    NEWS = "something has arrived"
    END = "the other side has closed it"


def socket_of(connection: Any, address: tuple[str, int] | None) -> socket.socket | None:
    """Return a duplicate of a driver connection's socket, or ``None`` where it is not to be found."""
    with suppress(AttributeError, OSError, TypeError, ValueError):
        return _duplicate(connection.fileno())
    if address is not None:
        with suppress(OSError):
            return _by_address(address)
    return None


def peek(watched: socket.socket) -> Sign:
    """Look whether anything has arrived; takes nothing away and never waits."""
    try:
        found = watched.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return Sign.NOTHING
    except OSError:
        return Sign.END
    return Sign.NEWS if found else Sign.END


def shut(watched: socket.socket | None) -> None:
    """Break the connection: whoever waits for an answer on it gets an error at once."""
    if watched is not None:
        with suppress(OSError):
            watched.shutdown(socket.SHUT_RDWR)


def close(watched: socket.socket | None) -> None:
    """Give up the duplicate, and the connection with it."""
    shut(watched)
    if watched is not None:
        watched.close()


def _duplicate(number: int) -> socket.socket:
    copied = os.dup(number)
    try:
        return socket.socket(fileno=copied)
    except OSError:
        os.close(copied)
        raise


def _by_address(address: tuple[str, int]) -> socket.socket | None:
    for name in os.listdir(_FOLDER):  # noqa: PTH208 - a folder of numbers, not of paths
        if not name.isdecimal() or not _is_socket(int(name)):
            continue
        found = _duplicate(int(name))
        if _is_at(found, address):
            return found
        found.close()
    return None


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:  # the one by which the folder was read
        return False


def _is_at(found: socket.socket, address: tuple[str, int]) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
        return False
    host, port = found.getsockname()[:2]
    return port == address[1] and host.removeprefix("::ffff:") in _spellings(address[0])


def _spellings(host: str) -> set[str]:
    # MySQL may tell the name of a host that it knows
    found = {host.removeprefix("::ffff:")}
    with suppress(OSError):
        found |= {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    return found


class BlockingWatch:
    """One daemon thread that waits for all watched sockets of the process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._looks: dict[socket.socket, Look] = {}
        self._thread: threading.Thread | None = None

    def add(self, watched: socket.socket, look: Look) -> None:
        """Have ``look`` called whenever the socket is readable."""
        with self._mutex:
            self._looks[watched] = look
            self._selector.register(watched, selectors.EVENT_READ)
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="sqllocks-sockets", daemon=True)
                self._thread.start()
        self._ring()

    def remove(self, watched: socket.socket) -> None:
        """Watch it no more; to be called before it is closed."""
        with self._mutex:
            self._looks.pop(watched, None)
            with suppress(KeyError, ValueError):
                self._selector.unregister(watched)
        self._ring()

    def _ring(self) -> None:
        with suppress(OSError):
            self._bell.send(b"!")

    def _main(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._ear:
                    with suppress(OSError):
                        self._ear.recv(4096)
                elif isinstance(key.fileobj, socket.socket):
                    self._look(key.fileobj)
            with self._mutex:
                if not self._looks:
                    self._thread = None
                    return

    def _look(self, watched: socket.socket) -> None:
        with self._mutex:
            look = self._looks.get(watched)
            if look is None:
                return
            # not again until it was looked at, or an answer on its way would turn this into a busy loop
            with suppress(KeyError, ValueError):
                self._selector.unregister(watched)
        pause = look()
        if pause is None:
            return
        if pause > 0:
            timer = threading.Timer(pause, self._again, (watched,))
            timer.daemon = True
            timer.start()
        else:
            self._again(watched)

    def _again(self, watched: socket.socket) -> None:
        with self._mutex:
            if watched not in self._looks:
                return
            with suppress(KeyError, ValueError, OSError):
                self._selector.register(watched, selectors.EVENT_READ)
        self._ring()


class AsyncioWatch:
    """Watches sockets on an event loop."""

    def __init__(self) -> None:
        self._looks: dict[socket.socket, Look] = {}

    def add(self, watched: socket.socket, look: Look) -> None:
        """Have ``look`` called whenever the socket is readable."""
        self._looks[watched] = look
        self._again(watched)

    def remove(self, watched: socket.socket) -> None:
        """Watch it no more; to be called before it is closed."""
        if self._looks.pop(watched, None) is not None:
            _loop().remove_reader(watched)

    def _again(self, watched: socket.socket) -> None:
        if watched in self._looks:
            with suppress(NotImplementedError, OSError):  # a loop that cannot: the heartbeat tells
                _loop().add_reader(watched, self._look, watched)

    def _look(self, watched: socket.socket) -> None:
        look = self._looks.get(watched)
        _loop().remove_reader(watched)
        pause = look() if look is not None else None
        if pause is not None:
            _loop().call_later(pause, self._again, watched)


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
