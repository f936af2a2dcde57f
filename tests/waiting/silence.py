"""A loopback relay that can fall silent: it swallows what comes, and closes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import URL

PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}


class SilentRelay:
    """Passes bytes on until ``silent`` is set."""

    def __init__(self) -> None:
        self.silent = False

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on in one direction."""
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    if not self.silent:
                        writer.write(data)
                        await writer.drain()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def silent_relay(url: URL) -> AsyncIterator[tuple[SilentRelay, URL]]:
    """Give a relay in front of a server, and the address through it."""
    relay = SilentRelay()
    pairs: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = url.port or PORTS[url.get_backend_name()]
        there, back = await asyncio.open_connection(url.host or "127.0.0.1", port)
        for work in (relay.copy(reader, back), relay.copy(there, writer)):
            task = asyncio.create_task(work)
            pairs.add(task)
            task.add_done_callback(pairs.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield relay, url.set(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in list(pairs):
            task.cancel()
        await asyncio.gather(*pairs, return_exceptions=True)
