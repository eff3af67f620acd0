"""The client sends what its caller names, null included."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdbeat.client import AsyncClient, Client, ProblemError
from tests.api.serving import FAR, Served, unique

NEVER_KILL: dict[str, Any] = {"type": "echo", "cancel_grace_s": None, "not_before": FAR}


@pytest.mark.rule("QUE-01", "CAN-03")
def test_never_kill_is_stored_by_every_method_that_makes_jobs(served: Served) -> None:
    with Client(served.url) as client:
        template = client.create_template({"name": unique("template"), "type": "echo"})
        made = [
            client.submit("echo", cancel_grace_s=None, not_before=FAR),
            client.submit(template=template["id"], cancel_grace_s=None, not_before=FAR),
            client.submit_job(NEVER_KILL),
            *client.submit_jobs([NEVER_KILL, {**NEVER_KILL, "priority": None}])["items"],
            *client.create_group({"mode": "parallel", "jobs": [NEVER_KILL]})["jobs"],
        ]
        assert [job["cancel_grace_s"] for job in made] == [None] * 6
        assert [client.get_job(job["id"])["cancel_grace_s"] for job in made] == [None] * 6
        assert client.submit("echo", not_before=FAR)["cancel_grace_s"] == 10.0

    async def other() -> list[Any]:
        async with AsyncClient(served.url) as client:
            one = await client.submit("echo", cancel_grace_s=None, not_before=FAR)
            many = await client.submit_jobs([NEVER_KILL])
            return [job["cancel_grace_s"] for job in (one, *many["items"])]

    assert asyncio.run(other()) == [None, None]


@pytest.mark.rule("QUE-01")
def test_a_field_that_the_caller_leaves_null_is_as_good_as_left_out(served: Served) -> None:
    with Client(served.url) as client:
        job = client.submit("echo", None, priority=None, idempotency_key=None, not_before=FAR)
        assert job["priority"] == 0
        assert job["idempotency_key"]
        (one,) = client.submit_jobs([{"type": "echo", "idempotency_key": None, "not_before": FAR}])["items"]
        assert one["idempotency_key"]
        key = unique("schlüssel")
        keyed: dict[str, Any] = {"type": "echo", "idempotency_key": key, "not_before": FAR}
        first = client.submit_job(keyed)
        assert first["idempotency_key"] == key
        assert client.submit_job(keyed)["id"] == client.submit_jobs([keyed])["items"][0]["id"] == first["id"]
        with pytest.raises(ProblemError):
            client.submit("echo", idempotency_key=7)
