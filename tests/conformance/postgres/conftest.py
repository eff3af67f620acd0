"""What tests of PostgreSQL alone share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.fault_proxy import FaultProxy


@pytest.fixture
def proxy(store_url: str) -> Iterator[FaultProxy]:
    """A line to the test's database that can be cut."""
    made = FaultProxy(store_url)
    yield made
    made.close()
