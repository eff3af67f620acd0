"""Holdbeat: a job scheduler that never lets go of a job.

from holdbeat import App, Context

app = App()

@app.job(resource="ollama", timeout="10m", retries=3)
async def story(ctx: Context, prompt: str, words: int = 500) -> dict: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncClient",
    "Cancelled",
    "ChildFailed",
    "Client",
    "Context",
    "HoldbeatError",
    "JobHandle",
    "PermanentFailure",
    "Policy",
    "RateLimited",
    "RetryPolicy",
    "SignalTimeout",
    "Skip",
    "SyncContext",
    "Work",
    "__version__",
]

_HOMES = {
    "App": "holdbeat.app",
    "JobHandle": "holdbeat.job_handle",
    "AsyncClient": "holdbeat.client",
    "Client": "holdbeat.client",
    "Cancelled": "holdbeat.handlers.context",
    "Context": "holdbeat.handlers.context",
    "PermanentFailure": "holdbeat.handlers.context",
    "Policy": "holdbeat.domain.policy",
    "Work": "holdbeat.domain.policy",
    "RateLimited": "holdbeat.handlers.context",
    "ChildFailed": "holdbeat.handlers.wait_calls",
    "SignalTimeout": "holdbeat.handlers.waits",
    "Skip": "holdbeat.handlers.context",
    "SyncContext": "holdbeat.handlers.context",
    "HoldbeatError": "holdbeat.domain.errors",
    "RetryPolicy": "holdbeat.domain.job",
}

if TYPE_CHECKING:
    from holdbeat.app import App
    from holdbeat.client import AsyncClient, Client
    from holdbeat.domain.errors import HoldbeatError
    from holdbeat.domain.job import RetryPolicy
    from holdbeat.domain.policy import Policy, Work
    from holdbeat.handlers.context import Cancelled, Context, PermanentFailure, RateLimited, Skip, SyncContext
    from holdbeat.handlers.wait_calls import ChildFailed
    from holdbeat.handlers.waits import SignalTimeout
    from holdbeat.job_handle import JobHandle


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used, so that the command line starts at once."""
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdbeat' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
