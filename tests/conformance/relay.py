"""A loopback relay in front of a server, which can lose an answer or the whole server."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

from sqlalchemy import URL

PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}


class Relay:
    """Passes bytes on in both directions until told otherwise."""

    def __init__(self, server: str, url: URL) -> None:
        self._upstream = (url.host or "127.0.0.1", url.port or PORTS[server])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._lose = False
        self._refuse = False
        self.lost = threading.Event()
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._refuse = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        """Return the URL through the relay as a text that can be used."""
        return self.url.render_as_string(hide_password=False)

    def lose_next_answer(self, *, then_refuse: bool = False) -> None:
        """Cut the connection instead of handing on the server's next answer.

        With ``then_refuse`` nobody gets through any more after that.
        """
        self.lost.clear()
        self._refuse_later = then_refuse
        self._lose = True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuse:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client,), name="relay", daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._upstream) as server, selectors.DefaultSelector() as ready:
            with self._lock:
                self._sockets |= {client, server}
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            with contextlib.suppress(OSError):
                while self._move(ready, server):
                    pass
            with self._lock:
                self._sockets -= {client, server}

    def _move(self, ready: selectors.DefaultSelector, server: socket.socket) -> bool:
        for key, _ in ready.select():
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(65_536)
            if not data:
                return False
            if key.fileobj is server and self._lose:
                self._lose = False
                self._refuse = self._refuse_later
                self.lost.set()
                return False
            key.data.sendall(data)
        return True
