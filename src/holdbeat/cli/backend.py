"""The backends of verbs: a store of this machine, or a server. Both have the methods of the blocking client.

`holdbeat.client.Client` is one of the two as it is; `LocalBackend` runs the same operations on a store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import click

from holdbeat.domain.errors import StoreRefused
from holdbeat.domain.traceparent import valid_traceparent

if TYPE_CHECKING:
    from holdbeat.client.blocking_client import Client, Endpoints, Schedules

    Backend = Client
    ScheduleBackend = Schedules | Endpoints
else:
    Backend = ScheduleBackend = Any

STORE_WAIT_S = 5.0
"""How long a verb waits for a store that a server may be creating just now."""


@contextmanager
def reached(
    composition: Any, store: str | None, server: str | None, key: str | None, *, create: bool = False
) -> Iterator[Backend]:
    """The backend that the options name, closed in the end. A `--store` beats a server from the environment."""
    source = click.get_current_context().get_parameter_source("server")
    if store is not None and server is not None:
        if source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--store and --server exclude each other: name one of them.")
        server = None
    # How a program that traces names its span to the commands that it starts.
    traceparent = valid_traceparent(os.environ.get("TRACEPARENT"))
    backend: Backend
    if server is not None:
        from holdbeat.client.blocking_client import Client

        _check_address(server)
        backend = Client(server, key=key, traceparent=traceparent)
    else:
        from holdbeat.cli.local import LocalBackend

        settings = composition.settings({"store": store})
        opened = composition.open_store(settings, create=True) if create else _open_store(composition, settings)
        backend = cast("Backend", LocalBackend(opened, settings, traceparent=traceparent))
    try:
        yield backend
    finally:
        backend.close()


def _open_store(composition: Any, settings: Any) -> Any:
    """Opens the store; one that is not there yet may be about to be created by a server that was just started.

    That server announces its job types right after, and they are waited for, too.
    """
    waited_s = 0.0
    while True:
        try:
            opened = composition.open_store(settings)
            break
        except StoreRefused as error:
            if error.code != "store_missing" or waited_s >= STORE_WAIT_S:
                raise
        if not waited_s:
            click.echo(f"There is no store yet; waiting up to {STORE_WAIT_S:g} s for a server to create it.", err=True)
        time.sleep(0.1)
        waited_s += 0.1
    if waited_s:
        _await_types(opened)
    return opened


def _await_types(store: Any) -> None:
    from holdbeat.store.queue.job_types import some_type_names

    waited_s = 0.0
    while waited_s < STORE_WAIT_S and not store.read_sync(some_type_names, 1):
        time.sleep(0.1)
        waited_s += 0.1


def _check_address(server: str) -> None:
    """Refuses what cannot be the address of a server, before anybody waits for it."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError as error:
        raise click.UsageError(f"--server {server!r} is no address: {error}.") from error
    if parts.scheme in ("http", "https") and parts.hostname and port != 0:
        return
    meant = f", e.g. http://{server}" if "/" not in server and server.strip() else ", e.g. http://127.0.0.1:7450"
    raise click.UsageError(f"--server {server!r} is no address of a server. Write it with http:// or https://{meant}.")
