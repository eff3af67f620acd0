"""Slips of a programmer: each is refused in a sentence that says what to write instead."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdbeat import App, Client
from holdbeat.client.async_client import AsyncClient
from holdbeat.domain.bounds import check_instant
from holdbeat.domain.errors import Conflict, Invalid, Unavailable
from holdbeat.domain.job import RetryPolicy
from holdbeat.domain.params import check_json


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'holdbeat.db'}")


def test_an_unknown_option_of_a_job_type_is_named_with_the_one_that_was_meant(app: App) -> None:
    with pytest.raises(Invalid, match=r"no option retry\. Did you mean retries\? Options are: name, .*webhook_url"):
        app.job(retry=1)(lambda: None)  # type: ignore[call-overload]


def test_an_instant_without_a_zone_is_refused_with_the_remedy(app: App) -> None:
    with pytest.raises(Invalid, match=r"not_before has no time zone.*replace\(tzinfo=UTC\).*astimezone\(\)"):
        app.with_options(not_before=datetime(2999, 1, 1)).enqueue_sync("http", url="http://127.0.0.1:1/")  # noqa: DTZ001
    assert check_instant(datetime(2999, 1, 1, tzinfo=UTC), "not_before").year == 2999
    app.close()


def test_a_direct_request_outside_of_running_is_told_how_to_run(app: App) -> None:
    with pytest.raises(Conflict, match=r"async with app\.running\(\).*holdbeat\.Client"):
        app.direct_sync("http", url="http://127.0.0.1:1/")


@pytest.mark.parametrize("address", ["localhost:7610", "127.0.0.1:7610", "ftp://localhost:7610"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_address_without_http_is_refused_with_the_one_that_was_meant(
    kind: type[Client | AsyncClient], address: str
) -> None:
    with pytest.raises(Unavailable, match=rf"e\.g\. http://{address.removeprefix('ftp://')}\."):
        kind(address)


def test_what_json_cannot_carry_is_named_in_grammar() -> None:
    with pytest.raises(Invalid, match="params is of the type object, which JSON cannot carry"):
        check_json(object(), field="params")


@pytest.mark.parametrize(("most", "words"), [(1, "its only retry is used up"), (2, "all 2 retries are used up")])
def test_retries_that_are_used_up_are_counted_in_grammar(app: App, most: int, words: str) -> None:
    from holdbeat.observe.explain import explain_job
    from holdbeat.testing import stage_sync

    @app.job(retries=RetryPolicy(max_attempts=most, base_delay_s=1))
    def broken() -> None:
        raise ValueError("no ink")

    with stage_sync(app, Path(app.settings.store.removeprefix("sqlite:///")).parent) as stage:
        job = app.enqueue_sync(broken)
        stage.drain()
        for _ in range(most):
            stage.advance(60)
        last = stage.job(job.id)
        while last.retried_by is not None:
            last = stage.job(last.retried_by)
        explanation = app.store.read_sync(explain_job, last.id)
        assert any(words in reason["detail"] for reason in explanation["reasons"]), explanation
