"""A direct request from the command line to the workers on the store of this machine.

Guards DEC-004 for a client without a server: for as long as it waits, this process is known to the store like any other
owner of a reservation, so that its request is expired when it dies, and not before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import TYPE_CHECKING, Any

from holdbeat import __version__
from holdbeat.client.messages import Message
from holdbeat.domain.errors import HoldbeatError
from holdbeat.engine.direct_execution import DirectExecutionHandler
from holdbeat.engine.worker_identity import this_worker
from holdbeat.operations.direct import DirectEvent, run_direct, stream_direct
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.workers import beat, register_worker, stop_worker

if TYPE_CHECKING:
    from holdbeat.cli.local import LocalBackend


async def run_direct_locally(backend: LocalBackend, *request: Any) -> dict[str, Any]:
    """Runs a type in the next free slot of some worker and answers as the API does.

    `request` is what `run_direct` takes: the type, its params, for how long to wait, and whether to preempt.
    """
    async with _known_owner(backend.store, backend.settings) as handler:
        return await run_direct(handler, backend.context, *request)


def stream(backend: LocalBackend, *request: Any) -> Generator[Message, None, None]:
    """Runs a direct request as a stream of events."""
    store = backend.store

    async def events() -> AsyncGenerator[DirectEvent, None]:
        async with (
            _known_owner(store, backend.settings) as handler,
            contextlib.aclosing(stream_direct(store, handler, backend.context, *request)) as messages,
        ):
            async for message in messages:
                yield message

    with asyncio.Runner() as runner:
        coming = events()
        try:
            while (event := runner.run(_next(coming))) is not None:
                if event.error is not None:
                    raise event.error
                yield Message(event.name, str(event.sequence), event.data)
        finally:
            runner.run(coming.aclose())


async def _next(events: AsyncGenerator[DirectEvent, None]) -> DirectEvent | None:
    return await anext(events, None)


@contextlib.asynccontextmanager
async def _known_owner(store: PersistenceAdapter, settings: Settings) -> AsyncIterator[DirectExecutionHandler]:
    """Makes direct requests as a process that the store knows while the block runs."""
    me = this_worker("cli", slots=0, http_slots=0, types=(), resources=None, version=__version__)
    owner, terms = me.id, settings.lease_terms
    store.announce_alive(owner)
    try:
        await store.write(register_worker, me, terms)
        handler = DirectExecutionHandler(
            store, owner, direct_wait_s=settings.direct_wait_s, reservation_s=settings.reservation_s
        )

        async def stay_known() -> None:
            while True:
                await asyncio.sleep(min(terms.heartbeat_s, settings.reservation_s / 4))
                await store.write(beat, owner, terms)
                await handler.step()

        staying = asyncio.create_task(stay_known())
        try:
            yield handler
        finally:
            staying.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoldbeatError):
                await staying
    finally:
        with contextlib.suppress(HoldbeatError):
            await store.write(stop_worker, owner)
        store.withdraw_alive(owner)
