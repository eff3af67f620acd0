"""The Python face: functions become job types, calls become jobs, and their end can be waited for."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import apsw
import psycopg
import pytest
from pydantic import BaseModel

from holdbeat import App, Context, PermanentFailure, Skip
from holdbeat.actors import this_program
from holdbeat.app import DirectFailed
from holdbeat.domain.errors import Conflict, Invalid, Unavailable
from holdbeat.domain.job import JobStatus
from holdbeat.store.queue.groups import load_group
from tests.engine.acting import Outage, rows

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 4, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10}


def make_app(url: str, **changes: Any) -> App:
    app = App(url, **{**FAST, **changes})

    @app.job(retries=0)
    async def story(ctx: Context, prompt: str, words: int = 500) -> dict[str, Any]:
        ctx.progress(0.5, "half")
        ctx.log("writing", words, "words")
        return {"text": prompt, "words": words, "fence": ctx.fence}

    @app.job(name="add", aliases=["plus"], retries=0)
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.job(retries=0)
    async def fail(kind: str) -> None:
        raise {"skip": Skip("nothing to do"), "never": PermanentFailure("no"), "error": ValueError("boom")}[kind]

    return app


@pytest.mark.rule("EXE-01", "EXE-03")
async def test_a_decorated_function_stays_callable_and_its_job_returns_what_it_returns(store_url: str) -> None:
    app = make_app(store_url)
    add = app._types["add"].function
    assert add is not None
    assert add(2, 3) == 5
    async with app.running():
        job = await app.enqueue(add, a=2, b=3)
        done = await job.wait(20)
        by_alias = await (await app.enqueue("plus", a=1)).wait(20)
    assert (done.status, done.run and done.run.result) == (JobStatus.COMPLETED, 5)
    assert by_alias.run is not None
    assert by_alias.run.result == 2
    assert by_alias.type == "add"
    app.close()


@pytest.mark.rule("EXE-03", "LEASE-03")
async def test_progress_logs_and_the_fence_reach_the_store(store_url: str) -> None:
    app = make_app(store_url)
    async with app.running():
        done = await (await app.enqueue("story", prompt="a fox")).wait(20)
    assert done.run is not None
    assert done.run.result == {"text": "a fox", "words": 500, "fence": done.run.fence}
    assert done.progress == {"fraction": 0.5, "message": "half"}
    lines = app.store.read_sync(lambda tx: tx.rows("SELECT stream, text FROM run_logs"))
    assert lines == [("log", "writing 500 words\n")]
    app.close()


@pytest.mark.rule("RET-05")
async def test_a_handler_can_skip_or_refuse_for_good(store_url: str) -> None:
    app = make_app(store_url)
    async with app.running():
        skipped = await (await app.enqueue("fail", kind="skip")).wait(20)
        never = await (await app.with_options(retries=3).enqueue("fail", kind="never")).wait(20)
        error = await (await app.enqueue("fail", kind="error")).wait(20)
    assert (skipped.status, skipped.run and skipped.run.error) == (JobStatus.SKIPPED, "nothing to do")
    assert never.run is not None
    assert (never.run.error_kind, never.permanently_failed, never.retried_by) == ("rejected", True, None)
    assert error.run is not None
    assert (error.run.error_kind, error.run.error) == ("error", "ValueError: boom")
    app.close()


@pytest.mark.rule("QUE-06")
async def test_params_that_do_not_fit_and_unknown_types_are_refused_at_submission(store_url: str) -> None:
    app = make_app(store_url)
    with pytest.raises(Invalid, match="words") as wrong:
        await app.enqueue("story", prompt="x", words="many")
    assert wrong.value.field == "params.words"
    with pytest.raises(Invalid, match="story"):
        await app.enqueue("stori", prompt="x")
    with pytest.raises(Invalid, match="not a job type of this App"):
        await app.enqueue(lambda: None)
    assert app.store.read_sync(lambda tx: tx.rows("SELECT id FROM jobs")) == []
    app.close()


@pytest.mark.rule("QUE-01", "QUE-02")
async def test_options_reach_the_job_and_the_same_key_finds_the_same_job(store_url: str) -> None:
    app = make_app(store_url)
    options = app.with_options(priority=7, delay=timedelta(hours=1), key="k1", labels={"who": "me"}, timeout="2m")
    first = await options.enqueue("add", a=1)
    again = await options.enqueue("add", a=1)
    assert first.id == again.id
    assert (first.job.priority, first.job.labels, first.job.timeout_s) == (7, {"who": "me"}, 120.0)
    assert first.job.not_before is not None
    with pytest.raises(Conflict):
        await options.enqueue("add", a=2)
    with pytest.raises(Conflict):
        await app.enqueue_many([app.call("add", a=5), options.call("add", a=2)])
    assert app.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM jobs")) == [(1,)]
    with pytest.raises(Invalid, match="no option prio"):
        app.with_options(prio=1)
    app.close()


@pytest.mark.rule("DEC-012", "GRP-01")
async def test_a_group_runs_in_order_and_a_template_gives_defaults(store_url: str) -> None:
    app = make_app(store_url)
    async with app.running():
        group, members = await app.group([app.call("add", a=1), app.call("add", a=2)], name="pair")
        ended = [await member.wait(20) for member in members]
        template = await app.template("plus-ten", "add", default_params={"b": 10})
        again = await app.template("plus-ten", "add", default_params={"b": 20})
    assert [job.run and job.run.result for job in ended] == [2, 3]
    assert ended[0].finished_at is not None
    assert ended[1].started_at is not None
    assert ended[0].finished_at <= ended[1].started_at
    assert app.store.read_sync(load_group, group.id)[0].status == "COMPLETED"
    assert (template.id, template.default_params, again.default_params) == (again.id, {"b": 10}, {"b": 20})
    app.close()


@pytest.mark.rule("DEC-004", "DIR-04")
async def test_a_direct_request_returns_its_result_and_leaves_no_job(store_url: str) -> None:
    app = make_app(store_url)
    with pytest.raises(Conflict, match="running"):
        await app.direct("add", a=1)
    async with app.running():
        assert await app.direct("add", a=1, b=2) == 3
        with pytest.raises(DirectFailed, match="boom"):
            await app.direct("fail", kind="error")
        assert await asyncio.to_thread(lambda: app.direct_sync("add", a=4)) == 5
    assert app.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM jobs")) == [(0,)]
    assert app.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM leases")) == [(0,)]
    app.close()


@pytest.mark.rule("QUE-03")
async def test_a_job_is_committed_and_rolled_back_with_the_callers_own_transaction(store_url: str) -> None:
    app = make_app(store_url)
    app.store.read_sync(lambda tx: None)

    def count() -> int:
        return int(app.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM jobs"))[0][0])

    for word, expected in (("ROLLBACK", 0), ("COMMIT", 1)):
        connection = own_transaction(store_url)
        app.with_options(connection=connection).enqueue_sync("add", a=1)
        assert count() == 0
        connection.execute(word)
        connection.close()
        assert count() == expected
    app.close()


@pytest.mark.rule("STO-01", "QUE-03")
async def test_a_connection_of_the_app_holds_own_tables_and_jobs_in_one_transaction(store_url: str) -> None:
    app = make_app(store_url)

    def count(table: str) -> int:
        return int(app.store.read_sync(lambda tx: tx.rows(f"SELECT count(*) FROM {table}"))[0][0])

    with app.connection() as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    with pytest.raises(ZeroDivisionError), app.connection() as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        app.with_options(connection=connection).enqueue_sync("add", a=1)
        raise ZeroDivisionError
    assert (count("orders"), count("jobs")) == (0, 0)
    async with app.running():
        with app.connection() as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            job = app.with_options(connection=connection).enqueue_sync("add", a=1)
            assert (count("orders"), count("jobs")) == (0, 0)
        done = await job.wait("20s")
        assert done.run is not None and done.run.result == 2
    assert (count("orders"), count("jobs")) == (1, 1)
    with app.connection() as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [(1,)]
    app.close()


async def test_sync_programs_can_enqueue_and_wait_beside_a_running_app(store_url: str) -> None:
    app = make_app(store_url)

    def script() -> Any:
        handles = app.enqueue_many_sync([app.call("add", a=1), app.call("add", a=2)])
        group, members = app.group_sync([app.call("add", a=3)])
        return [handle.wait_sync("20s").run for handle in [*handles, *members]], group.id

    async with app.running():
        runs, group_id = await asyncio.to_thread(script)
    assert [run.result for run in runs] == [2, 3, 4]
    assert group_id
    app.close()


def own_transaction(url: str) -> Any:
    """A transaction of the caller's own, as a program with tables beside ours would have it."""
    connection: Any
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(5000)
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection = psycopg.connect(url, autocommit=True)
        connection.execute("BEGIN")
    return connection


@pytest.mark.rule("QUE-03")
@pytest.mark.parametrize("how", ["option", "call", "group", "group of calls", "async", "async group"])
async def test_a_connection_is_joined_wherever_it_is_named(store_url: str, how: str) -> None:
    app = make_app(store_url)

    def count() -> int:
        return int(app.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM jobs"))[0][0])

    assert count() == 0
    for word, expected in (("ROLLBACK", 0), ("COMMIT", 1)):
        connection = own_transaction(store_url)
        joined = app.with_options(connection=connection)
        match how:
            case "option":
                joined.enqueue_many_sync([app.call("add", a=1)])
            case "call":
                app.enqueue_many_sync([joined.call("add", a=1)])
            case "group":
                joined.group_sync([app.call("add", a=1)])
            case "group of calls":
                app.group_sync([joined.call("add", a=1)])
            case "async":
                await app.enqueue_many([joined.call("add", a=1)])
            case "async group":
                await joined.group([app.call("add", a=1)])
        assert count() == 0
        connection.execute(word)
        connection.close()
        assert count() == expected
    app.close()


@pytest.mark.rule("QUE-03")
async def test_what_cannot_join_a_transaction_says_so(store_url: str) -> None:
    app = make_app(store_url)
    one, other = app.with_options(connection=object()), app.with_options(connection=object())
    with pytest.raises(Invalid, match="different connections") as refusal:
        app.enqueue_many_sync([one.call("add", a=1), other.call("add", a=1)])
    assert refusal.value.field == "connection"
    with pytest.raises(Invalid, match="cannot be part of your own transaction"):
        one.template_sync("t", "add")
    with pytest.raises(Invalid, match="cannot be part of your own transaction"):
        await one.direct("add", a=1)
    app.close()


@pytest.mark.rule("QUE-03", "QUE-06")
async def test_the_first_use_of_an_app_may_be_inside_the_callers_own_transaction(store_url: str) -> None:
    App(store_url).store.close()
    connection = own_transaction(store_url)
    app = make_app(store_url)
    handle = app.with_options(connection=connection).enqueue_sync("add", a=1)
    connection.execute("COMMIT")
    connection.close()
    async with app.running():
        done = await handle.wait(20)
    assert done.status is JobStatus.COMPLETED
    app.close()


@pytest.mark.rule("QUE-06")
async def test_an_announcement_that_failed_is_made_again(
    store_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(store_url)
    store = app.store
    outage = Outage(store, request, monkeypatch)

    @app.job(name="new")
    def new() -> None: ...

    with outage.during(), pytest.raises(Unavailable):
        await asyncio.to_thread(app.enqueue_sync, "new")
    assert (await app.enqueue("new")).job.type == "new"
    app.close()


@pytest.mark.rule("QUE-06")
@pytest.mark.parametrize(
    ("field", "wrong"),
    [("resource", "*"), ("resource", 5), ("resource", " gpu"), ("priority", "high"), ("priority", 1.5),
     ("priority", True), ("priority", 101), ("webhook_url", "junk"), ("webhook_url", "ftp://x/"), ("retries", -1),
     ("retries", "3"), ("retries", True), ("timeout", 0), ("isolation", "vm")],
)  # fmt: skip
async def test_a_job_type_with_an_impossible_policy_is_refused_when_it_is_registered(field: str, wrong: Any) -> None:
    app = App()
    with pytest.raises(Invalid) as refusal:
        app.job_with(lambda: None, **{"name": "wrong", field: wrong})
    assert refusal.value.field == field
    assert "wrong" not in app._types


@pytest.mark.rule("GRP-01")
async def test_a_group_of_an_unknown_kind_is_refused_by_the_fields_name(store_url: str) -> None:
    app = make_app(store_url)
    for field in ("mode", "on_failure"):
        policy: dict[str, Any] = {field: "bogus"}
        with pytest.raises(Invalid, match="must be one of") as refusal:
            app.group_sync([app.call("add", a=1)], **policy)
        assert refusal.value.field == field
        with pytest.raises(Invalid):
            await app.group([app.call("add", a=1)], **policy)
    app.close()


@pytest.mark.rule("CAN-01")
async def test_a_handle_cancels_its_job_and_says_so_when_there_is_nothing_left_to_cancel(store_url: str) -> None:
    app = make_app(store_url)
    first, second = await app.enqueue("add", a=1), await app.enqueue("add", a=2)
    cancelled = await first.cancel("a mistake")
    assert (cancelled.id, cancelled.status, first.job) == (first.id, JobStatus.CANCELLED, cancelled)
    assert (await asyncio.to_thread(second.cancel_sync)).status is JobStatus.CANCELLED
    with pytest.raises(Conflict, match="ended already"):
        await first.cancel()
    app.close()


@pytest.mark.rule("DEC-012")
async def test_jobs_are_made_from_a_template_by_its_name_or_by_itself(store_url: str) -> None:
    app = make_app(store_url)
    template = await app.template("plus-ten", "add", default_params={"b": 10}, priority=4)
    by_name = await app.with_options(priority=9).enqueue_template("plus-ten", a=1)
    by_itself = await app.enqueue(template, a=2, b=3)
    in_a_thread = await asyncio.to_thread(lambda: app.enqueue_template_sync("plus-ten", a=4))
    (member,) = (await app.group([app.call_template("plus-ten", a=5)]))[1]
    made = [handle.job for handle in (by_name, by_itself, in_a_thread, member)]
    assert [(job.type, job.params, job.priority) for job in made] == [
        ("add", {"a": 1, "b": 10}, 9),
        ("add", {"a": 2, "b": 3}, 4),
        ("add", {"a": 4, "b": 10}, 4),
        ("add", {"a": 5, "b": 10}, 4),
    ]
    with pytest.raises(Invalid, match="plus-one"):
        await app.enqueue_template("plus-one", a=1)
    app.close()


@pytest.mark.rule("TIME-01", "TIME-09")
async def test_a_program_declares_its_schedules_as_often_as_it_likes(store_url: str) -> None:
    app = make_app(store_url)
    template = await app.template("plus-ten", "add", default_params={"b": 10})
    nightly = await app.schedule("nightly", "story", cron="0 3 * * *", timezone="Europe/Vienna", params={"prompt": "x"})
    often = await app.schedule("often", template, every="10m", params={"a": 1})
    assert (nightly.type, nightly.cron, nightly.params) == ("story", "0 3 * * *", {"prompt": "x"})
    assert (often.template_id, often.interval_s) == (template.id, 600)
    again = await asyncio.to_thread(lambda: app.schedule_sync("often", template, every="10m", params={"a": 1}))
    assert (again.id, again.version) == (often.id, often.version)
    changed = await app.schedule("often", template, every="20m")
    assert (changed.id, changed.interval_s, changed.version) == (often.id, 1200, often.version + 1)
    with pytest.raises(Invalid):
        await app.schedule("never", "story", cron="61 * * * *")
    app.close()


async def test_a_retry_policy_is_had_from_the_package_itself() -> None:
    import holdbeat

    app = App()

    @app.job(retries=holdbeat.RetryPolicy(max_attempts=5, base_delay_s=1))
    def patient() -> None: ...

    assert app._types["patient"].retry_policy == holdbeat.RetryPolicy(5, 1)


class Colour(Enum):
    BLUE = "blue"


@dataclass
class Address:
    street: str
    number: int


class Person(BaseModel):
    name: str
    born: date


@pytest.mark.rule("QUE-06", "EXE-01")
async def test_params_may_be_what_the_handler_takes(store_url: str) -> None:
    """An enum, a dataclass, a model, a time, a set: given as they are, stored as JSON, received as they were."""
    app = App(store_url, **FAST)
    got: list[Any] = []

    @app.job
    async def typed(
        ctx: Context, colour: Colour, home: Address, person: Person, at: datetime, key: UUID, tags: list[str]
    ) -> str:
        got.append((colour, home, person, at, key, tags))
        return colour.value

    fields: dict[str, Any] = {
        "colour": Colour.BLUE,
        "home": Address("Hill", 2),
        "person": Person(name="Ada", born=date(1815, 12, 10)),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "key": UUID("01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"),
        "tags": {"b", "a"},
    }
    async with app.running():
        done = await (await app.enqueue(typed, **fields)).wait(20)
        assert done.run is not None and done.run.result == "blue"
        assert await app.direct(typed, **fields) == "blue"
    expected = (*list(fields.values())[:-1], ["a", "b"])
    assert got == [expected, expected]
    with pytest.raises(Invalid, match=r"params\.colour\.x is .*, which JSON cannot carry"):
        await app.enqueue(typed, **{**fields, "colour": {"x": object()}})
    app.close()


@pytest.mark.rule("AUD-01")
async def test_what_a_program_does_is_on_record_under_its_name(store_url: str) -> None:
    app = make_app(store_url)
    first, second = [await app.enqueue("add", a=1), app.enqueue_sync("add", a=1)]
    await app.signal(first.id, "go", 1)
    app.signal_sync(first.id, "go", 2)
    await first.cancel("no")
    second.cancel_sync("no")
    await app.schedule("s", "add", every="1h", params={"a": 1})
    events = rows(app.store, "SELECT name, data FROM events ORDER BY id")
    acts = [(name, json.loads(data) if isinstance(data, str) else data) for name, data in events]
    mine = [name for name, data in acts if data.get("actor") == this_program()]
    assert mine == ["job.queued"] * 2 + ["signal.sent"] * 2 + ["job.cancelled"] * 2 + ["schedule.changed"]
    assert {data["sent_by"] for name, data in acts if name == "signal.sent"} == {this_program()}
    app.close()


@pytest.mark.rule("LEASE-04")
@pytest.mark.parametrize("is_opened", [False, True])
async def test_no_call_of_an_app_makes_the_event_loop_wait_for_the_store(store_url: str, is_opened: bool) -> None:
    """Somebody else holds the database while an App is to open its store, or to announce a type that was added."""
    await asyncio.to_thread(make_app(store_url).close)
    apps = [App(store_url, **FAST) for _ in range(4)]
    for number, app in enumerate(apps):
        if is_opened:
            await app._store_for_loop()
        app.job(name=f"late-{number}")(lambda: None)
    first, second, third, fourth = apps
    connection: Any
    if store_url.startswith("sqlite"):
        connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection = psycopg.connect(store_url)
        connection.execute("LOCK TABLE job_types IN ACCESS EXCLUSIVE MODE")
    loan = fourth.slot("gpu")
    calls = [
        asyncio.create_task(first.enqueue("late-0")),
        asyncio.create_task(second.template("short", "late-1")),
        asyncio.create_task(third.schedule("nightly", "late-2", cron="0 3 * * *")),
        asyncio.create_task(loan.__aenter__()),
    ]
    await asyncio.sleep(0.2)  # each has had its turn on the loop
    assert not any(call.done() for call in calls)
    connection.execute("ROLLBACK")
    connection.close()
    await asyncio.gather(*calls)
    await loan.__aexit__()
    for app in apps:
        await asyncio.to_thread(app.close)
