"""A way to a server that can be shut: by refusing, or by silence, as a network that is gone."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

from sqlalchemy import URL

PORTS = {"postgresql": 5432, "mysql": 3306}


class Gate:
    """Passes bytes between its port and the server, while it is open."""

    def __init__(self, url: URL) -> None:
        self._server = (url.host or "127.0.0.1", url.port or PORTS[url.get_backend_name()])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._refusing = False
        self._ended = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self.url = url.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._open.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._cut()

    def fall_silent(self) -> None:
        """Keep all connections, and let nothing through any more."""
        self._open.clear()

    def refuse(self) -> None:
        """Cut all connections, and each new one at once."""
        self._refusing = True
        self._cut()

    def admit(self) -> None:
        """Let everybody through again."""
        self._refusing = False

    def _cut(self) -> None:
        for pair in list(self._pairs):
            for each in pair:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
            else:
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server, selectors.DefaultSelector() as ready:
            pair = (client, server)
            self._pairs.add(pair)
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            with contextlib.suppress(OSError):
                while self._move(ready):
                    pass
            self._pairs.discard(pair)

    def _move(self, ready: selectors.DefaultSelector) -> bool:
        for key, _ in ready.select():
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(65_536)
            self._open.wait()
            if not data or self._ended:
                return False
            key.data.sendall(data)
        return True
