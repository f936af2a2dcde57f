"""The memory twins that a URL makes: all those of a process share one memory, as they would a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqllocks.electors import PREFIX, AsyncMemoryElector, MemoryElector
from sqllocks.lockers import AsyncMemoryLocker, MemoryLocker
from sqllocks.model import Seconds
from sqllocks.policy import HEARTBEAT
from sqllocks.providers import AsyncMemoryLockProvider, MemoryLockProvider
from sqllocks.runtime.rooms import MemoryRoom, process_memory

__all__ = [
    "AsyncProcessElector",
    "AsyncProcessLockProvider",
    "AsyncProcessLocker",
    "ProcessElector",
    "ProcessLockProvider",
    "ProcessLocker",
]


class ProcessLockProvider(MemoryLockProvider):
    """Leases in the one memory of this process."""

    def __init__(self, *, namespace: str = "") -> None:
        self._namespace = namespace
        super().__init__()

    def _find(self, clock: Callable[[], datetime] | None) -> MemoryRoom:
        return process_memory(namespace=self._namespace)


class AsyncProcessLockProvider(AsyncMemoryLockProvider):
    """Leases in the one memory of this process."""

    def __init__(self, *, namespace: str = "") -> None:
        self._namespace = namespace
        super().__init__()

    def _find(self, clock: Callable[[], datetime] | None) -> MemoryRoom:
        return process_memory(namespace=self._namespace)


class ProcessLocker(MemoryLocker):
    """Session locks in the one memory of this process."""

    def __init__(
        self, *, namespace: str = "", lease: Seconds = 15, heartbeat: Seconds | None = HEARTBEAT
    ) -> None:
        self._namespace = namespace
        super().__init__(lease=lease, heartbeat=heartbeat)

    def _find(self) -> MemoryRoom:
        return process_memory("session", namespace=self._namespace)


class AsyncProcessLocker(AsyncMemoryLocker):
    """Session locks in the one memory of this process."""

    def __init__(
        self, *, namespace: str = "", lease: Seconds = 15, heartbeat: Seconds | None = HEARTBEAT
    ) -> None:
        self._namespace = namespace
        super().__init__(lease=lease, heartbeat=heartbeat)

    def _find(self) -> MemoryRoom:
        return process_memory("session", namespace=self._namespace)


class ProcessElector(MemoryElector):
    """Elects in the one memory of this process."""

    def __init__(
        self,
        *,
        namespace: str = "",
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        retry: Seconds = 2,
        prefix: str = PREFIX,
        on_error: Callable[[BaseException], Any] | None = None,
    ) -> None:
        self._namespace = namespace
        super().__init__(lease=lease, heartbeat=heartbeat, retry=retry, prefix=prefix, on_error=on_error)

    def _find(self, namespace: str) -> MemoryRoom:
        return process_memory("session", namespace=self._namespace + namespace)


class AsyncProcessElector(AsyncMemoryElector):
    """Elects in the one memory of this process."""

    def __init__(
        self,
        *,
        namespace: str = "",
        lease: Seconds = 15,
        heartbeat: Seconds | None = HEARTBEAT,
        retry: Seconds = 2,
        prefix: str = PREFIX,
        on_error: Callable[[BaseException], Any] | None = None,
    ) -> None:
        self._namespace = namespace
        super().__init__(lease=lease, heartbeat=heartbeat, retry=retry, prefix=prefix, on_error=on_error)

    def _find(self, namespace: str) -> MemoryRoom:
        return process_memory("session", namespace=self._namespace + namespace)
