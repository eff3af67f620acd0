"""A user of the database who may not do all that a store needs is told what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from holdbeat.domain.errors import StoreRefused
from tests.conformance.acts import enqueue_one, open_at


@pytest.fixture
def plain_role(postgres_url: str) -> Iterator[str]:
    """The address of a store for a user who may read and write all of its tables, and owns none."""
    open_at(postgres_url).close()
    role = f"plain_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        for statement in (
            f"CREATE ROLE {role}",
            f"GRANT ALL ON SCHEMA public TO {role}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
        ):
            owner.execute(statement.encode())
        yield f"{postgres_url}?options=-crole%3D{role}"
        owner.execute(f"DROP OWNED BY {role}".encode())
        owner.execute(f"DROP ROLE {role}".encode())


@pytest.mark.rule("QUE-05")
def test_a_user_who_owns_no_table_ages_jobs_once_the_owner_has_made_the_index(
    plain_role: str, postgres_url: str
) -> None:
    store = open_at(plain_role)
    enqueue_one(store)
    store.close()
    with pytest.raises(StoreRefused, match=r"must be owner of table jobs.*the first process with aging_s"):
        open_at(plain_role, aging_s=60)
    open_at(postgres_url, aging_s=60).close()
    store = open_at(plain_role, aging_s=60)
    enqueue_one(store)
    store.close()
