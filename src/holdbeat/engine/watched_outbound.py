"""Outgoing calls under the policy that the servers of the store impose (SEC-04).

Guards against a worker that calls into its own network on behalf of an outsider: private and loopback addresses are
open only while neither this process nor any server of the store can be reached from other machines. That is looked up
again before a call, at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.errors import HoldbeatError
from holdbeat.handlers.outbound import Outbound, OutboundFailure
from holdbeat.settings import Settings
from holdbeat.store.access.exposed_servers import is_exposed
from holdbeat.store.adapter import PersistenceAdapter

FRESH_S = 1.0


class WatchedOutbound(Outbound):
    def __init__(self, settings: Settings, store: Callable[[], PersistenceAdapter]) -> None:
        """`store` is asked for only when a call is made: job types may be listed before a store is opened."""
        super().__init__(OutboundPolicy(not settings.is_exposed, settings.outbound_allow))
        self._own = self.policy
        self._open_store = store
        self._read_at = float("-inf")

    def refuse_local(self) -> None:
        """Makes this process count as reached from other machines from now on."""
        self._own = self.policy = replace(self._own, loopback_server=False)

    async def _review_policy(self) -> None:
        """Reads how the servers stand, unless that was done just now or would change nothing."""
        if not self._own.loopback_server:
            return
        now = asyncio.get_running_loop().time()
        if now - self._read_at < FRESH_S:
            return
        try:
            closed = await self._open_store().read(is_exposed)
        except HoldbeatError as error:
            # What was known before still holds: without its store no server accepts anything.
            if self._read_at == float("-inf"):
                raise OutboundFailure(
                    f"The store could not be asked what may be called: {error.code}.", "connect"
                ) from error
            return
        self._read_at = now
        self.policy = replace(self._own, loopback_server=not closed)
