"""The header Idempotency-Key is taken as it is documented, or refused."""

from __future__ import annotations

import pytest

from tests.api.serving import FAR, Served, problem_of, unique

BODY = {"type": "echo", "not_before": FAR}


@pytest.mark.rule("QUE-01", "API-02")
@pytest.mark.parametrize("key", ["schlüssel".encode(), b"\xff", b"two words", b"", b"k" * 256])
def test_a_key_that_a_header_cannot_carry_is_refused(served: Served, key: bytes) -> None:
    refused = served.client.post("/api/jobs", json=BODY, headers=[(b"Idempotency-Key", key)])
    assert problem_of(refused, 422, "invalid_header")["field"] == "Idempotency-Key"


@pytest.mark.rule("QUE-01")
@pytest.mark.parametrize("is_same", [True, False])
def test_more_than_one_header_with_a_key_is_refused(served: Served, is_same: bool) -> None:
    first = unique("key")
    second = first if is_same else unique("key")
    headers = [("Idempotency-Key", first), ("Idempotency-Key", second)]
    refused = served.client.post("/api/jobs", json=BODY, headers=headers)
    assert problem_of(refused, 422, "duplicate_header")["field"] == "Idempotency-Key"


@pytest.mark.rule("QUE-01")
def test_a_key_of_visible_ascii_finds_its_job_again(served: Served) -> None:
    key = unique('!"#$%&~')
    first = served.client.post("/api/jobs", json=BODY, headers={"Idempotency-Key": key})
    again = served.client.post("/api/jobs", json=BODY, headers={"Idempotency-Key": key})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert first.json()["idempotency_key"] == key
