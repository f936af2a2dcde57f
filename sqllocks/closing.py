"""What is closed at the end of its ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

__all__ = ["AsyncCloses", "Closes"]


class Closes(ABC):
    """The block of something that has ``close``."""

    @abstractmethod
    def close(self, timeout: Any = ...) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncCloses(ABC):
    """The block of something that has ``aclose``."""

    @abstractmethod
    async def aclose(self, timeout: Any = ...) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
