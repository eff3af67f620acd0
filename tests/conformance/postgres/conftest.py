"""What tests of PostgreSQL alone share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdbeat.store.postgres.store import PostgresStore
from tests.conformance.acts import open_at
from tests.conformance.fault_proxy import FaultProxy


@pytest.fixture
def proxy(store_url: str) -> Iterator[FaultProxy]:
    """A line to the test's database that can be cut."""
    made = FaultProxy(store_url)
    yield made
    made.close()


@pytest.fixture
def far_store(proxy: FaultProxy) -> Iterator[PostgresStore]:
    """The test's database as a store behind that line."""
    opened = open_at(proxy.url)
    assert isinstance(opened, PostgresStore)
    yield opened
    opened.close()
