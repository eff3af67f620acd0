"""How long a direct request may wait is the server's to say."""

from __future__ import annotations

import pytest

from tests.api.conftest import Serve
from tests.api.serving import open_gate, problem_of, unique


@pytest.mark.rule("DIR-03")
def test_no_direct_request_waits_longer_than_the_server_allows_and_is_told_so(serve: Serve) -> None:
    served = serve(direct_wait_s=0.7)
    gate = unique("gate")
    job = served.submit("narrow_hold", {"gate": gate})
    served.wait_for(job["id"], "RUNNING")
    capped = served.client.post("/api/direct/narrow_hold", json={"params": {"gate": gate}, "wait_s": 3600})
    detail = problem_of(capped, 504, "waited_too_long")["detail"]
    assert "within 0.7 s" in detail
    assert "direct_wait_s" in detail
    assert "wait_s," not in detail
    sooner = served.client.post("/api/direct/narrow_hold", json={"params": {"gate": gate}, "wait_s": 0})
    assert "allow more time with wait_s, up to 0.7 s" in problem_of(sooner, 504, "waited_too_long")["detail"]
    open_gate(gate)
    served.wait_for(job["id"])
