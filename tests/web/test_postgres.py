"""The dashboard on PostgreSQL: every page, and one that lives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.api.serving import Served
from tests.postgres import PostgresServer
from tests.web.conftest import serve_at
from tests.web.things import paths_of_everything


@pytest.fixture(scope="module")
def on_postgres(postgres_server: PostgresServer) -> Iterator[Served]:
    postgres_server.start()
    url = postgres_server.create_database()
    server = serve_at(url)
    yield server
    server.stop()
    postgres_server.drop_database(url)


@pytest.mark.rule("API-04")
def test_every_page_works_on_postgresql_and_follows_events(on_postgres: Served, page: Page) -> None:
    for path in paths_of_everything(on_postgres):
        answer = on_postgres.client.get(path)
        assert answer.status_code == 200, (path, answer.text)
    page.goto(f"{on_postgres.url}/ui/jobs")
    expect(page.locator("[data-pulse]")).to_have_text("Live")
    job = on_postgres.submit("echo")
    row = page.locator(f"#j-{job['id']}")
    expect(row).to_contain_text("Completed")
