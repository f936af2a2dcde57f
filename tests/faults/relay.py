"""A loopback relay in front of a server, and the network faults that it can play.

with Relay(url) as relay:
    engine = create_engine(relay.url)
    relay.delay(0.2, Direction.TO_CLIENT)     every piece of an answer comes that much later
    relay.lose_next_answer()                  the server did it, and the client never learns
    relay.fall_silent()                       nothing comes through, and nothing is closed
    relay.refuse()                            no connection, old or new
    relay.cut()                               those that are open end now
    relay.pass_on()                           all is well again
"""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from types import TracebackType
from typing import Self

from sqlalchemy import URL

PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
PIECE = 65_536


class Direction(Enum):
    """Which way bytes go."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class Relay:
    """Passes bytes on in both directions until told otherwise; to be used from any thread."""

    def __init__(self, url: URL) -> None:
        self._server = (url.host or "127.0.0.1", url.port or PORTS[url.get_backend_name()])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        self.lost = threading.Event()
        """Set once the answer of ``lose_next_answer`` was thrown away."""
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._delays = dict.fromkeys(Direction, 0.0)
        self._audible = threading.Event()
        self._audible.set()
        self._ended = threading.Event()
        self._refusing = False
        self._losing = False
        self._refuse_after_loss = False
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.refuse()
        self._audible.set()

    @property
    def address(self) -> str:
        """Return the URL through the relay as a text that can be used, password and all."""
        return self.url.render_as_string(hide_password=False)

    def delay(self, seconds: float, direction: Direction) -> None:
        """Hold each piece back for so long; the order stays."""
        self._delays[direction] = seconds

    def lose_next_answer(self, *, then_refuse: bool = False) -> None:
        """Cut the connection instead of handing on the server's next answer; ``then_refuse``: and refuse."""
        with self._lock:
            self.lost.clear()
            self._refuse_after_loss = then_refuse
            self._losing = True

    def fall_silent(self) -> None:
        """Keep all connections and let nothing through; what was sent meanwhile comes at ``pass_on``."""
        self._audible.clear()

    def refuse(self) -> None:
        """Cut all connections, and each new one at once."""
        with self._lock:
            self._refusing = True
        self.cut()

    def cut(self) -> None:
        """Cut the connections that are open."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            _shut(pair)

    def pass_on(self) -> None:
        """Undo every fault; what is cut stays cut."""
        with self._lock:
            self._refusing = self._losing = False
            self._delays = dict.fromkeys(Direction, 0.0)
        self._audible.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="relay", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._server) as server:
            pair = (client, server)
            with self._lock:
                if self._refusing:
                    return
                self._pairs.add(pair)
            answers = threading.Thread(
                target=self._pump, args=(pair, server, client, Direction.TO_CLIENT), name="relay", daemon=True
            )
            answers.start()
            self._pump(pair, client, server, Direction.TO_SERVER)
            answers.join()
            with self._lock:
                self._pairs.discard(pair)

    def _pump(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        sink: socket.socket,
        direction: Direction,
    ) -> None:
        with contextlib.suppress(OSError):
            while (piece := source.recv(PIECE)) and not self._loses(direction):
                self._audible.wait()
                self._ended.wait(self._delays[direction])
                sink.sendall(piece)
        # a network that is silent hides the end of a connection too
        self._audible.wait()
        _shut(pair)

    def _loses(self, direction: Direction) -> bool:
        with self._lock:
            loses = self._losing and direction is Direction.TO_CLIENT
            if not loses:
                return False
            self._losing = False
            refuses = self._refuse_after_loss
        if refuses:
            self.refuse()
        self.lost.set()
        return True


def _shut(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
