"""The servers of this store that can be reached from other machines (SEC-04).

Guards the network around the workers: what a server accepts from outside is run by any worker of its store, on any
machine, so what workers may call depends on the servers and not on the workers' own settings.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import timedelta

from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.params import dumps
from holdbeat.store import meta
from holdbeat.store.transaction import Transaction

EXPOSED = "exposed_servers"
PROXIED = "requests_through_proxy"
ARRIVAL_S = 60.0
"""A server takes its address before it registers as a worker; for this long it is believed without that."""


def note_server(tx: Transaction, worker_id: str, *, is_exposed: bool, dead: Collection[str] = ()) -> None:
    """A server has taken its address. Only one on loopback makes the store forget exposed ones that have ended."""
    if is_exposed:
        # There must be a row to lock: two servers that arrive together would not see each other.
        meta.put_if_absent(tx, EXPOSED, "{}")
    servers = _read(tx, lock=True)
    if is_exposed:
        servers[worker_id] = iso(tx.now)
    elif servers:
        servers = _still_there(tx, servers, dead)
    else:
        return
    meta.put(tx, EXPOSED, dumps(servers))


def note_proxy(tx: Transaction, worker_id: str) -> None:
    """A request came through a proxy: the server counts as exposed, also after it was started again."""
    meta.put(tx, PROXIED, "true")
    note_server(tx, worker_id, is_exposed=True)


def forget_proxy(tx: Transaction) -> None:
    """The operator says that the server is not exposed, whatever was seen before."""
    if is_behind_proxy(tx):
        meta.put(tx, PROXIED, "false")


def is_behind_proxy(tx: Transaction) -> bool:
    """Whether a request came through a proxy at any time."""
    return meta.get(tx, PROXIED) == "true"


def is_exposed(tx: Transaction) -> bool:
    """Whether work in this store may have come from other machines."""
    return bool(_read(tx))


def _read(tx: Transaction, *, lock: bool = False) -> dict[str, str]:
    text = meta.get(tx, EXPOSED, lock=lock)
    servers: dict[str, str] = json.loads(text) if text is not None else {}
    return servers


def _still_there(tx: Transaction, known: dict[str, str], dead: Collection[str]) -> dict[str, str]:
    registered = {
        row[0]: row[1] is None and tx.time(row[2])
        for row in tx.rows("SELECT id, stopped_at, expires_at FROM workers WHERE id IN :ids", ids=sorted(known))
    }
    live = {}
    for worker_id, since in known.items():
        if worker_id in dead:
            continue
        until = registered.get(worker_id, from_iso(since) + timedelta(seconds=ARRIVAL_S))
        if until and until > tx.now:
            live[worker_id] = since
    return live
