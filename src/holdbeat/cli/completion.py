"""Completion in shells: offers names that the local store knows.

Guards the prompt: whatever goes wrong here offers nothing and says nothing. A server is not asked: it may be far away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import click

SHOWN = 200


def job_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of job types, for the one word of a verb that is a type."""
    if param.nargs == -1 and ctx.params.get(param.name or ""):
        return []
    return _offered(ctx, incomplete, lambda backend: [item["name"] for item in backend.job_types()["items"]])


def schedule_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of schedules, or of endpoints below `endpoints`; none for the name of a new one."""
    if ctx.info_name == "create":
        return []
    is_endpoint = ctx.parent is not None and ctx.parent.info_name == "endpoints"

    def names(backend: Any) -> list[str]:
        kind = backend.endpoints if is_endpoint else backend.schedules
        return [item["name"] for item in kind.list(limit=SHOWN)["items"]]

    return _offered(ctx, incomplete, names)


def _offered(ctx: click.Context, incomplete: str, names: Callable[[Any], list[str]]) -> list[str]:
    store = ctx.params.get("store")
    if ctx.params.get("server") or (store is None and os.environ.get("HOLDBEAT_SERVER")):
        return []
    with contextlib.suppress(Exception):
        from holdbeat.cli.local import LocalBackend

        settings = ctx.obj.settings({"store": store})
        backend = LocalBackend(ctx.obj.open_store(settings), settings)
        try:
            return [name for name in names(backend) if name.startswith(incomplete)]
        finally:
            backend.close()
    return []
