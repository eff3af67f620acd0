"""An App is closed whatever its other threads wait for (CON-003)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdbeat import App, app_store
from holdbeat.domain.errors import StoreDown


@pytest.mark.rule("CON-003")
def test_an_app_is_closed_though_a_thread_waits_for_its_store(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_store, "CLOSE_WITHIN_S", 0.1)
    app = App(store_url)
    store = app.store
    announcing, may_go_on = threading.Event(), threading.Event()
    errors: list[StoreDown] = []

    @app.job
    def added_later() -> None:
        """Makes the App announce its job types anew."""

    def announcements() -> list[Any]:
        # As long as a store does not answer, the thread that announces holds the App's lock.
        announcing.set()
        may_go_on.wait(30)
        return []

    def use() -> None:
        try:
            app.enqueue_sync("added_later")
        except StoreDown as error:
            errors.append(error)

    monkeypatch.setattr(app, "_announcements", announcements)
    user = threading.Thread(target=use)
    user.start()
    assert announcing.wait(30)
    closing = threading.Thread(target=app.close, daemon=True)
    closing.start()
    closing.join(20)
    is_closed = not closing.is_alive()
    may_go_on.set()
    user.join(30)
    assert is_closed
    assert [error.code for error in errors] == ["store_closed"]
    with pytest.raises(StoreDown):
        store.read_sync(lambda tx: tx.rows("SELECT 1"))
