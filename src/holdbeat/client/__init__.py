"""Clients of a Holdbeat server: `Client` for plain programs, `AsyncClient` for those with an event loop.

    from holdbeat import Client

    with Client("http://127.0.0.1:7450") as client:
        job = client.submit("story", {"prompt": "a fox"}, priority=5)
        done = client.wait_job(job["id"])

Methods that send one request are declared once for both (`method.py`). The others of `Client` are those of
`AsyncClient`, run without an event loop (`blocking_client.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdbeat.client.problem import ProblemError

if TYPE_CHECKING:
    from holdbeat.client.async_client import AsyncClient
    from holdbeat.client.blocking_client import Client

__all__ = ["AsyncClient", "Client", "ProblemError"]

_HOMES = {"AsyncClient": "holdbeat.client.async_client", "Client": "holdbeat.client.blocking_client"}


def __getattr__(name: str) -> Any:
    """Loads one of the two clients when it is used; most programs need only one."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'holdbeat.client' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
