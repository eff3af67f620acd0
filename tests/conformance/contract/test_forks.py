"""A store belongs to the process that opened it: after a fork nothing is lost, and nobody hangs (DEC-008, OPS-06)."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator

import pytest

from holdbeat import App
from holdbeat.domain.errors import StoreRefused
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import count, enqueue_one, rows

LIFE_MAX_S = 40


class Child:
    """A forked child that waits for a word, does something, and says what came of it."""

    def __init__(self, deed: Callable[[], str]) -> None:
        hears, self._tells = os.pipe()
        self._hears, says = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            output = "?"
            try:
                signal.alarm(LIFE_MAX_S)
                os.read(hears, 1)
                output = deed()
            except BaseException:
                output = traceback.format_exc()
            finally:
                os.write(says, output.encode())
                os._exit(0)
        os.close(hears)
        os.close(says)

    def output(self) -> str:
        """Lets the child go on, and returns what it says."""
        os.write(self._tells, b"!")
        os.close(self._tells)
        with os.fdopen(self._hears) as stream:
            output = stream.read()
        assert os.waitpid(self._pid, 0)[1] == 0
        return output


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    made = App(store_url)

    @made.job
    def noop() -> None: ...

    yield made
    made.close()


def ids(app: App) -> set[str]:
    return {row[0] for row in rows(app.store, "SELECT id FROM jobs")}


@pytest.mark.rule("DEC-008", "OPS-06")
def test_what_a_forked_child_stores_is_kept_after_its_parent_closed_the_store(app: App) -> None:
    app.enqueue_sync("noop")

    def store_three() -> str:
        handles = [app.enqueue_sync("noop") for _ in range(3)]
        assert app.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM jobs")) == [(4,)]
        return " ".join(handle.id for handle in handles)

    child = Child(store_three)
    app.close()
    acknowledged = child.output().split()
    assert len(acknowledged) == 3
    assert set(acknowledged) <= ids(app)


@pytest.mark.rule("DEC-008", "OPS-06")
def test_parent_and_forked_children_write_side_by_side_and_lose_nothing(app: App) -> None:
    app.enqueue_sync("noop")
    stopped = threading.Event()
    acknowledged: list[str] = []

    def keep_busy() -> None:
        while not stopped.is_set():
            acknowledged.append(app.enqueue_sync("noop").id)
            ids(app)

    def store_some() -> str:
        return " ".join(app.enqueue_sync("noop").id for _ in range(20))

    threads = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        # Each is forked in the middle of somebody's work.
        children = [Child(store_some) for _ in range(4)]
        lines = [child.output() for child in children]
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    app.close()
    words = [line.split() for line in lines]
    assert [len(ones) for ones in words] == [20, 20, 20, 20], lines
    assert {*acknowledged, *(one for ones in words for one in ones)} <= ids(app)


@pytest.mark.rule("DEC-008")
def test_a_bare_store_and_a_handle_refuse_in_a_child_and_go_on_in_the_parent(
    app: App, store: PersistenceAdapter
) -> None:
    enqueue_one(store)
    handle = app.enqueue_sync("noop")

    def try_all() -> str:
        codes = []
        for attempt in (
            lambda: enqueue_one(store),
            lambda: count(store, "jobs"),
            lambda: store.joined(None),
            lambda: handle.wait_sync(1),
        ):
            with pytest.raises(StoreRefused, match="before the process forked") as refusal:
                attempt()
            codes.append(refusal.value.code)
        store.close()
        return " ".join(codes)

    assert Child(try_all).output().split() == ["store_forked"] * 4
    enqueue_one(store)
    assert count(store, "jobs") == 3


@pytest.mark.rule("LEASE-05")
def test_a_forked_child_does_not_take_its_parents_worker_for_its_own(app: App) -> None:
    app.store.announce_alive("parent")

    def look() -> str:
        return str(sorted(app.store.known_dead()))

    assert Child(look).output() == "[]"
    assert app.store.known_dead() == frozenset()
    app.store.withdraw_alive("parent")
