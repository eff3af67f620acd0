"""Signals are received from the moment on at which they no longer end the process by themselves (CON-003)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.clock import SystemClock
from holdbeat.engine.shutdown_watch import SIGNALS, ShutdownWatch
from holdbeat.engine.supervisor import Supervisor
from holdbeat.engine.worker_processes import WorkerProcesses


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    """An App; the signal handlers are afterwards what they were before."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    app = App(store_url)
    yield app
    app.close()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SIGTERM comes as soon as its handler is there."""
    install = signal.signal

    def install_and_raise(number: signal.Signals, handler: Any) -> Any:
        before = install(number, handler)
        if number is signal.SIGTERM and not raised:
            raised.append(number)
            signal.raise_signal(number)
        return before

    raised: list[int] = []
    monkeypatch.setattr(signal, "signal", install_and_raise)


@pytest.mark.rule("CON-003")
@pytest.mark.usefixtures("raised_at_once")
def test_a_worker_does_not_lose_a_signal_that_comes_at_once(app: App) -> None:
    async def program() -> None:
        told = asyncio.Event()
        watch = ShutdownWatch(Supervisor(app.store, app.settings, []), told.set)
        watch.handle_signals()
        try:
            await asyncio.wait_for(told.wait(), 10)
        finally:
            watch.close()

    asyncio.run(program())


@pytest.mark.rule("CON-005")
@pytest.mark.usefixtures("raised_at_once")
@pytest.mark.timeout(10)
def test_the_parent_of_several_workers_does_not_lose_a_signal_that_comes_at_once() -> None:
    assert WorkerProcesses([], SystemClock()).run() == 0
