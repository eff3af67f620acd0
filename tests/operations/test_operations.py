"""Each operation gives the same answer and the same refusal over HTTP and on a store of this machine.

Two servers with a worker each, on two stores: one is asked through the client, the other's store through LocalBackend.
The same calls are made in the same order on both, and what they gave is compared.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from holdbeat.cli.local import LocalBackend
from holdbeat.client import Client
from holdbeat.operations import MODULES, find_operation
from holdbeat.operations.kinds import methods_of
from holdbeat.store.opening import open_store
from holdbeat.store.reads.job_filter import LIST_FILTERS
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.recovery.recover_leases import expire_reservation
from tests.api.conftest import Serve
from tests.api.serving import Served, open_gate, unique
from tests.operations.operation_cases import cases
from tests.operations.world import World, ask
from tests.waiting import eventually

SPECIAL = (
    "direct",
    "reserve_slot",
    "get_artifact",
    "wait_job",
    "follow_logs",
    "follow_chunks",
    "follow_reservation_chunks",
    "stream_direct",
    "events",
    "endpoints.test",
)
"""Methods of the client that are no single operation, and exist in both all the same."""


def names_of_operations() -> list[str]:
    """Every operation, by the name of the client's method."""
    plain = [name for names in MODULES.values() for name in names]
    kinds = [f"{namespace}.{method}" for namespace in ("schedules", "endpoints") for method in methods_of(namespace)]
    return [*plain, *kinds]


CANNOT_BE_REFUSED = frozenset(
    {
        "stats",
        "list_limits",
        "list_keys",
        "list_attention",
        "webhook_secret",
        "wait_job",
        "follow_logs",
        "follow_chunks",
        "follow_reservation_chunks",
        "events",
    }
)
CANNOT_BE_ANSWERED = frozenset({"redeliver"})
"""It needs a delivery that was given up, which takes longer than a test should."""


@pytest.fixture(scope="module")
def worlds(new_store_url: Any) -> Iterator[tuple[World, World]]:
    over_http = Served(new_store_url(), allow_shell=True)
    beside = Served(new_store_url(), allow_shell=True)
    over = World(Client(over_http.url))
    store = open_store(beside.settings.store, beside.store.terms, create=False)
    local = LocalBackend(store, beside.settings)
    try:
        yield over, World(cast("Client", local))
    finally:
        over.backend.close()
        local.close()
        over_http.stop()
        beside.stop()


@pytest.mark.rule("API-07")
def test_every_operation_answers_and_refuses_alike_over_http_and_on_a_store(worlds: tuple[World, World]) -> None:
    over_http, local = worlds
    kinds: dict[str, set[str]] = {}
    differing = []
    for number, (name, call) in enumerate(cases()):
        expected, outcome = over_http.outcome(call), local.outcome(call)
        if outcome != expected:
            differing.append(f"{number} {name}\n  local {outcome}\n  http  {expected}")
        kinds.setdefault(name, set()).add(str(outcome[0]))
    assert not differing, "\n".join(differing)
    unanswered = {name for name in kinds if "answer" not in kinds[name]}
    unrefused = {name for name in kinds if "refusal" not in kinds[name]}
    assert unanswered <= CANNOT_BE_ANSWERED, unanswered
    assert unrefused <= CANNOT_BE_REFUSED, unrefused


@pytest.mark.rule("API-07", "DIR-04")
def test_a_direct_request_that_a_shutdown_interrupts_is_interrupted_on_the_command_line_too(serve: Serve) -> None:
    server = serve(shutdown_grace_s=0)
    local = LocalBackend(open_store(server.settings.store, server.store.terms, create=False), server.settings)
    world = World(cast("Client", local))
    heard: list[Any] = []
    direct = ask("direct", "hold", {"gate": unique("never")})
    waiting = threading.Thread(target=lambda: heard.append(world.outcome(direct)))
    waiting.start()
    try:
        eventually(lambda: any(item["granted_at"] for item in local.list_reservations(status="ACTIVE")["items"]))
        server.run(server.supervisor.stop(0))
        waiting.join(30)
    finally:
        local.close()
    assert [outcome[:3] for outcome in heard] == [("refusal", 503, "interrupted")]


@pytest.mark.rule("API-07", "DIR-02")
@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_direct_request_whose_reservation_expired_says_so_and_whether_it_had_begun(
    serve: Serve, *, is_local: bool, has_begun: bool
) -> None:
    server = serve()
    backend = Client(server.url)
    if is_local:
        store = open_store(server.settings.store, server.store.terms, create=False)
        backend = cast("Client", LocalBackend(store, server.settings))
    gate = unique("gate")
    heard: list[Any] = []
    if not has_begun:
        server.wait_for(server.submit("narrow_hold", {"gate": gate})["id"], "RUNNING")
    direct = ask("direct", "narrow_hold", {"gate": gate})
    waiting = threading.Thread(target=lambda: heard.append(World(backend).outcome(direct)))
    waiting.start()
    try:
        reservations = eventually(
            lambda: [
                item
                for item in server.client.get("/api/reservations?status=ACTIVE").json()["items"]
                if bool(item["granted_at"]) is has_begun
            ]
        )
        terms = server.settings.lease_terms
        owner = server.store.read_sync(RESERVATIONS.get, reservations[0]["id"]).owner
        assert owner is not None
        assert server.store.write_sync(expire_reservation, reservations[0]["id"], terms, {owner})
        waiting.join(30)
    finally:
        open_gate(gate)
        backend.close()
    assert [outcome[:3] for outcome in heard] == [("refusal", 504, "expired")]
    assert ("may have had effects" in str(heard)) is has_begun


@pytest.mark.rule("API-07")
def test_no_operation_is_left_out_of_the_comparison() -> None:
    assert {*names_of_operations(), *SPECIAL} == {name for name, _ in cases()}


@pytest.mark.rule("API-07")
def test_every_method_of_the_client_is_an_operation_with_the_same_arguments() -> None:
    client = Client("http://127.0.0.1:1")
    transport = {
        "call",
        "fetch",
        "messages",
        "close",
        "url",
        "submit",
        "one_stream",
        "health",
        "readiness",
        "metrics",
        "slot",
    }
    try:
        methods = {name for name in dir(client) if not name.startswith("_")} - transport - {"schedules", "endpoints"}
        for namespace in ("schedules", "endpoints"):
            kind = getattr(client, namespace)
            names = [name for name in dir(kind) if not name.startswith("_") and name != "base_path"]
            methods |= {f"{namespace}.{name}" for name in names}
        assert methods - set(SPECIAL) == set(names_of_operations())
        for name in names_of_operations():
            operation = find_operation(name)
            assert operation is not None
            method: Any = client
            for part in name.split("."):
                method = getattr(method, part)
            taken = dict(inspect.signature(method).parameters)
            given = dict(operation.parameters)
            if "filters" in given and "filters" not in taken:
                # The store has the names of the filters, and refuses others.
                assert set(LIST_FILTERS) == set(taken) - set(given), name
                given = {key: p for key, p in given.items() if key != "filters"}
                taken = {key: p for key, p in taken.items() if key in given}
            assert [(p.name, p.kind, p.default) for p in taken.values()] == [
                (p.name, p.kind, p.default) for p in given.values()
            ], name
    finally:
        client.close()
