"""Forks: every open store finishes its work before the process forks, and the child's copies refuse all calls."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from holdbeat.domain.errors import StoreRefused


class Forkable(Protocol):
    """The part of a store that a fork concerns."""

    def before_fork(self) -> None:
        """Waits for the work at hand, so that the child inherits nothing half done."""

    def after_fork_in_parent(self) -> None:
        """Ends what `before_fork` began."""

    def after_fork_in_child(self) -> None:
        """Gives up the store: the threads are not here, and the connections are the parent's."""


def watch_forks(store: Forkable) -> None:
    """Has the store told of forks for as long as it lives."""
    _STORES[id(store)] = store


def forked() -> StoreRefused:
    """The error of a forked child that uses a store which its parent opened."""
    return StoreRefused(
        "This store was opened before the process forked, and belongs to the parent. Open it anew in the child: an App "
        "does so by itself, a JobHandle does not.",
        code="store_forked",
    )


_STORES: weakref.WeakValueDictionary[int, Forkable] = weakref.WeakValueDictionary()
_forking = threading.local()


def _before_fork() -> None:
    _forking.stores = [store for store in (reference() for reference in _STORES.valuerefs()) if store is not None]
    for store in _forking.stores:
        store.before_fork()


def _after_fork_in_parent() -> None:
    for store in _forking.stores:
        store.after_fork_in_parent()
    _forking.stores = []


def _after_fork_in_child() -> None:
    for store in _forking.stores:
        store.after_fork_in_child()
    _forking.stores = []


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
