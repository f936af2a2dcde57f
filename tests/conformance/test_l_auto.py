"""Section L, 139 to 142: the elector that the environment names."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sqllocks import (
    AsyncTerm,
    BackendUnsupported,
    LockValidationError,
    MemoryElector,
    SqlElector,
    Term,
    create_async_elector_auto,
    create_elector_auto,
    register_elector,
    registry,
)

AUTO: list[Callable[..., Any]] = [create_elector_auto, create_async_elector_auto]
VARIABLES = ("SQLLOCKS_ELECTOR_URL", "DLOCK_ELECTOR_URL", "KUBERNETES_SERVICE_HOST")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with none of the variables set."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("auto", AUTO)
def test_c139_a_url_decides_above_everything(
    auto: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    for scheme in ("decides_first", "decides_second"):
        if not registry._electors.has(scheme):
            register_elector(scheme, lambda url: url.drivername, async_factory=lambda url: url.drivername)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("DLOCK_ELECTOR_URL", "decides_second://")
    seen.append(auto())
    monkeypatch.setenv("SQLLOCKS_ELECTOR_URL", "decides_first://")
    seen.append(auto())
    assert seen == ["decides_second", "decides_first"]
    assert not caplog.records


@pytest.mark.parametrize("auto", AUTO)
def test_c139_an_invalid_url_is_an_error(auto: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOCK_ELECTOR_URL", "memory://")
    monkeypatch.setenv("SQLLOCKS_ELECTOR_URL", "no url")
    with pytest.raises(LockValidationError):
        auto()
    monkeypatch.setenv("SQLLOCKS_ELECTOR_URL", "nosuchscheme://")
    with pytest.raises(BackendUnsupported, match="nosuchscheme"):
        auto()


@pytest.mark.parametrize("auto", AUTO)
def test_c140_kubernetes_never_gets_a_silent_memory(
    auto: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(BackendUnsupported, match=r"k8s backend.*SQLLOCKS_ELECTOR_URL"):
        auto()
    # it may be chosen, but not by accident
    monkeypatch.setenv("SQLLOCKS_ELECTOR_URL", "memory://")
    auto()


def test_c141_c073_without_any_it_is_memory_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, " ")
    assert isinstance(create_elector_auto(), MemoryElector)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "no other process" in record.getMessage()
    assert "SQLLOCKS_ELECTOR_URL" in record.getMessage()
    monkeypatch.setenv("SQLLOCKS_ELECTOR_URL", f"sqlite:///{tmp_path / 'locks.db'}")
    with create_elector_auto() as elector:
        assert isinstance(elector, SqlElector)
    assert len(caplog.records) == 1


def test_c142_two_calls_exclude_each_other_whatever_their_form() -> None:
    leading, over = threading.Event(), threading.Event()
    order: list[str] = []

    def lead(term: Term) -> None:
        order.append("blocking")
        leading.set()
        over.wait(10)
        order.append("resigned")

    async def stand() -> None:
        done = asyncio.Event()

        async def lead_too(term: AsyncTerm) -> None:
            order.append("asyncio")
            done.set()

        async with create_async_elector_auto(retry=0.05) as elector:
            running = asyncio.create_task(elector.run("same", lead_too))
            async with asyncio.timeout(10):
                info = await elector.leader("same")
                assert info is not None
                assert not done.is_set()
                over.set()
                await done.wait()
            running.cancel()
            await asyncio.wait({running})

    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads, create_elector_auto(retry=0.05) as elector:
        running = threads.submit(elector.run, "same", lead, stop=stop)
        assert leading.wait(10)
        with create_elector_auto() as other:
            info = other.leader("same")
            assert info is not None
            assert info.kind == "session"
        stop.set()
        asyncio.run(stand())
        running.result(10)
    assert order == ["blocking", "resigned", "asyncio"]
