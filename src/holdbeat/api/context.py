"""The context of the API: the store, the settings, the engine of its process, and hooks for metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdbeat.api.client_limits import ClientLimits
from holdbeat.domain.address import OutboundPolicy
from holdbeat.engine.watched_outbound import WatchedOutbound
from holdbeat.observe.readiness import Readiness
from holdbeat.operations.kept_kinds import KeptKinds
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction

if TYPE_CHECKING:
    from holdbeat.api.event_feed import EventFeed
    from holdbeat.api.key_ring import KeyRing
    from holdbeat.api.sessions import Sessions
    from holdbeat.engine.supervisor import Supervisor


def _no_metrics() -> tuple[bytes, str]:
    return b"", "text/plain; version=0.0.4; charset=utf-8"


def _nothing(path: str) -> None:
    return None


@dataclass(slots=True)
class ApiContext:
    """Everything that all requests to one server share."""

    store: PersistenceAdapter
    settings: Settings
    supervisor: Supervisor
    keys: KeyRing
    sessions: Sessions
    feed: EventFeed
    outbound: WatchedOutbound
    """Makes the test calls of endpoints."""
    metrics: Callable[[], tuple[bytes, str]] = _no_metrics
    """Renders `/metrics`: the text and its content type."""
    count_legacy_call: Callable[[str], None] = _nothing
    """Told the path template of each call of the legacy API."""
    has_dashboard: bool = False
    """Whether a browser without a key should be led to `/login`."""
    is_stopping: bool = False
    is_exposed: bool = False
    """Whether requests come from other machines (SEC-04)."""
    client_limits: ClientLimits = field(default_factory=ClientLimits)
    kinds: KeptKinds = field(default_factory=KeptKinds)
    readiness: Readiness = field(init=False)

    def __post_init__(self) -> None:
        self.readiness = Readiness(
            self.store,
            dispatcher_beat=self.supervisor.dispatcher.behind_s,
            is_stopping=lambda: self.is_stopping or self.supervisor.is_stopping,
        )

    def refuse_local(self) -> None:
        """Makes this server count as exposed from now on."""
        self.is_exposed = True
        self.outbound.refuse_local()

    def outbound_policy(self, tx: Transaction) -> OutboundPolicy:
        """The policy by which this server calls addresses (SEC-04)."""
        return self.outbound.policy
