"""Jobs in the caller's own transaction on PostgreSQL, whichever library has its connection (QUE-03).

On SQLite these libraries must not open the store's file (STO-01), so there is nothing to join.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db.utils import ConnectionHandler
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from holdbeat import App
from holdbeat.domain.errors import HoldbeatError
from tests.engine.acting import rows

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.rule("QUE-03"),
    pytest.mark.parametrize("store_url", ["postgres"], indirect=True),
]


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    made = App(store_url)
    made.job_with(_noop, name="noop")
    assert rows(made.store, "SELECT id FROM jobs") == []  # and its job types are announced
    yield made
    made.close()


def _noop() -> None:
    """Does nothing."""


def _ids(app: App) -> list[str]:
    return [row[0] for row in rows(app.store, "SELECT id FROM jobs ORDER BY position")]


async def test_an_async_connection_carries_jobs_and_groups(app: App, store_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(store_url) as connection:
        joined = app.with_options(connection=connection)
        undone = await joined.enqueue("noop")
        assert _ids(app) == []
        await connection.rollback()
        first = await joined.enqueue("noop")
        _, (second, third) = await joined.group([app.call("noop"), app.call("noop")])
        await connection.commit()
    assert undone.id not in _ids(app)
    assert _ids(app) == [first.id, second.id, third.id]


async def test_an_async_connection_is_refused_with_the_right_reason(app: App, store_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(store_url, autocommit=True) as connection:
        joined = app.with_options(connection=connection)
        with pytest.raises(HoldbeatError, match="verbs that are awaited"):
            joined.enqueue_sync("noop")
        with pytest.raises(HoldbeatError, match="No transaction is open"):
            await joined.enqueue("noop")
        async with connection.transaction():
            await joined.enqueue("noop")
    with pytest.raises(HoldbeatError, match="this is a builtins"):
        app.with_options(connection=7).enqueue_sync("noop")
    assert len(_ids(app)) == 1


async def test_a_session_of_sqlalchemy_carries_jobs(app: App, store_url: str) -> None:
    engine = sqlalchemy.create_engine(store_url.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        app.with_options(connection=session).enqueue_sync("noop")
        session.rollback()
        assert _ids(app) == []
        first = app.with_options(connection=session).enqueue_sync("noop")
        session.commit()
    with engine.begin() as connection:
        second = app.with_options(connection=connection).enqueue_sync("noop")
    engine.dispose()
    assert _ids(app) == [first.id, second.id]


async def test_an_async_connection_of_sqlalchemy_carries_jobs(app: App, store_url: str) -> None:
    engine = create_async_engine(store_url.replace("postgresql:", "postgresql+psycopg:"))
    async with engine.begin() as connection:
        job = await app.with_options(connection=connection).enqueue("noop")
        assert _ids(app) == []
    await engine.dispose()
    assert _ids(app) == [job.id]


async def test_a_transaction_of_django_carries_jobs(app: App, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    if not settings.configured:
        settings.configure(USE_TZ=True)
    parts = urlsplit(store_url)
    handler = ConnectionHandler(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username,
                "HOST": parts.hostname, "PORT": parts.port,
            }
        }
    )  # fmt: skip
    connection = handler["default"]
    for opened in (False, True):
        if opened:
            connection.ensure_connection()
        with pytest.raises(HoldbeatError, match="atomic") as refused:
            app.with_options(connection=connection).enqueue_sync("noop")
        assert refused.value.code == "no_transaction" and "this is a" not in str(refused.value)
    connection.set_autocommit(False)
    job = app.with_options(connection=connection).enqueue_sync("noop")
    assert _ids(app) == []
    connection.commit()
    connection.close()
    assert _ids(app) == [job.id]
