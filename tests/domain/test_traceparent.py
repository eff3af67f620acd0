"""Which texts are a traceparent."""

from __future__ import annotations

import pytest

from holdbeat.domain.traceparent import is_traceparent

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.rule("OPS-05")
def test_a_traceparent_names_a_trace_and_a_span_in_lower_case_and_nothing_more() -> None:
    assert is_traceparent(GOOD)
    for bad in ("", "garbage", GOOD.upper(), GOOD + "-more", GOOD + "\n", "00-" + "0" * 32 + GOOD[35:],
                GOOD[:36] + "0" * 16 + "-01"):  # fmt: skip
        assert not is_traceparent(bad), bad
