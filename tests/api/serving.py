"""A real server on a real socket, in a thread of the test process, with handlers that the test controls."""

from __future__ import annotations

import asyncio
import io
import secrets
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx2

from holdbeat.api.server import ApiServer
from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.api_key import Scope, new_key
from holdbeat.domain.clock import Clock
from holdbeat.domain.ids import IdSource
from holdbeat.domain.run import RunStatus
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.engine.supervisor import Supervisor
from holdbeat.engine.webhook_service import WebhookService
from holdbeat.handlers.context import Context, PermanentFailure, Skip
from holdbeat.handlers.http import http_job_type
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.outbound import Outbound
from holdbeat.handlers.shell import shell_job_type
from holdbeat.settings import Settings
from holdbeat.store.access.api_keys import create_api_key
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.opening import open_store
from holdbeat.store.transaction import StoreTerms
from tests.waiting import eventually

T = TypeVar("T")
CONCURRENCY = "resources:default=64,http=16,narrow=1,lane=1"

FAR = "2099-01-01T00:00:00.000Z"
"""When nothing of a test is still there."""

GATES: dict[str, threading.Event] = {}
"""A `hold` job ends when the gate that it names is opened."""


async def echo(x: int = 1, text: str | None = None) -> dict[str, Any]:
    """Gives back what it was given."""
    return {"x": x, "text": text}


async def talk(ctx: Context, gate: str | None = None, words: int = 3) -> str:
    """Emits words and an object, with a wait between them if a gate is named."""
    ctx.log("begins to talk")
    for number in range(words):
        ctx.emit(f"word{number} ")
    ctx.progress(0.5, "half")
    if gate is not None:
        await hold(gate)
    ctx.emit({"done": True})
    return "said"


async def anything(**params: Any) -> dict[str, Any]:
    return params


async def hold(gate: str) -> str:
    opened = GATES.setdefault(gate, threading.Event())
    # Not a thread that waits: that one could not be cancelled.
    while not opened.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return gate


async def fail(message: str = "no") -> None:
    raise RuntimeError(message)


async def fail_for_good() -> None:
    raise PermanentFailure("never again")


async def skip() -> None:
    raise Skip("nothing to do")


async def draw(ctx: Context) -> str:
    """Leaves a log and an artifact behind."""
    for number in range(3):
        ctx.log(f"line {number}")
    await asyncio.to_thread(ctx.artifact, "picture.bin", b"\x00\x01picture")
    ctx.progress(0.5, "half")
    return "drawn"


async def chat(ctx: Context, lines: int, gate: str) -> None:
    for number in range(lines):
        ctx.log(f"line {number}")
        await asyncio.sleep(0.01)
    await hold(gate)
    ctx.log("last")


async def asks(ctx: Context, schema: dict[str, Any] | None = None) -> Any:
    if schema is not None:
        return await ctx.ask("How shall it go out?", schema=schema)
    return await ctx.ask("Send the draft?", choices=["yes", "no", "later"])


async def has_child(ctx: Context) -> Any:
    return await ctx.run("asks")


async def waits_in_parallel(ctx: Context) -> Any:
    return await asyncio.gather(ctx.sleep(3600), ctx.wait_for("paid"), ctx.run("asks"), ctx.run("asks"))


async def stepped(ctx: Context, gate: str | None = None) -> str:
    async def second_value() -> str:
        if gate is not None:
            await hold(gate)
        return "two"

    first = await ctx.step("first", lambda: "one")
    second = await ctx.step("second", second_value)
    return f"{first} {second}"


def open_gate(gate: str) -> None:
    """Lets a `hold` job end, also one that has not begun yet."""
    GATES.setdefault(gate, threading.Event()).set()


def job_types() -> list[JobType]:
    outbound = Outbound(OutboundPolicy(True, ()))
    return [
        JobType.from_function(echo, aliases=("parrot",)),
        JobType.from_function(anything),
        JobType.from_function(hold),
        JobType.from_function(hold, "narrow_hold", resource="narrow"),
        JobType.from_function(talk),
        JobType.from_function(talk, "narrow_talk", resource="narrow"),
        JobType.from_function(hold, "impatient", timeout=0.2, cancel_grace=0.1),
        JobType.from_function(fail, retries=0),
        JobType.from_function(fail_for_good),
        JobType.from_function(skip),
        JobType.from_function(draw),
        JobType.from_function(chat),
        JobType.from_function(asks, retries=0),
        JobType.from_function(has_child, retries=0),
        JobType.from_function(waits_in_parallel, retries=0),
        JobType.from_function(stepped),
        JobType.from_function(echo, "story"),
        http_job_type(outbound),
        shell_job_type(),
    ]


class _TellingClient(httpx2.Client):
    """Says which request was not answered in time, and where the server's tasks stood."""

    def __init__(self, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(**options)
        self._loop = loop

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return super().send(request, **options)
        except httpx2.TimeoutException as error:
            output = io.StringIO()
            for task in asyncio.all_tasks(self._loop):
                task.print_stack(limit=8, file=output)
            error.add_note(
                f"{request.method} {request.url} was not answered. Tasks of the server:\n{output.getvalue()}"
            )
            raise


class Served:
    """A server with everything in it; `client` speaks to it without a key."""

    def __init__(
        self,
        url: str,
        *,
        has_worker: bool = True,
        is_key_needed: bool = False,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        fields = {
            "slots": 64,
            "concurrency": CONCURRENCY,
            "port": 0,
            "recover_s": 1,
            "shutdown_grace_s": 0.2,
            **settings,
        }
        self.settings = Settings().with_changes(store=url, **fields)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="served", daemon=True)
        self._thread.start()
        terms = StoreTerms(IdSource(), self.settings.declared_limits, self.settings.aging_s)
        self.store: PersistenceAdapter = open_store(url, terms, clock=clock)
        self.legacy_calls: list[str] = []
        self.admin_key = self.add_key(Scope.ADMIN) if is_key_needed else None
        try:
            self.server: ApiServer = self.run(self._start(has_worker))
        except BaseException:
            self._end_loop()
            raise
        self.url = self.server.address
        self.client = self.new_client()

    async def _start(self, has_worker: bool) -> ApiServer:
        self.supervisor = Supervisor(
            self.store,
            self.settings,
            job_types(),
            kind="serve",
            has_worker=has_worker,
            more_services=[
                ScheduleTrigger.for_settings(self.store, self.settings),
                WebhookService.for_settings(self.store, self.settings),
            ],
        )
        server = ApiServer(self.supervisor, count_legacy_call=self.legacy_calls.append)
        await server.check_access()
        await self.supervisor.start()
        try:
            await server.start()
        except BaseException:
            await self.supervisor.stop(0)
            raise
        return server

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 30) -> T:
        """Runs a coroutine in the server's own event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def stop(self) -> None:
        self.client.close()
        for gate in GATES.values():
            gate.set()

        async def end() -> None:
            self.server.begin_to_stop()
            await self.supervisor.stop(0.2)
            await self.server.stop()

        self.run(end())
        self._end_loop()

    def _end_loop(self) -> None:
        self.store.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    # --- who asks -----------------------------------------------------------------------------------------

    def add_key(self, scope: Scope, name: str = "test") -> str:
        key = new_key(secrets.token_bytes(32))
        self.store.write_sync(create_api_key, name, scope, key)
        return key

    def new_client(self, key: str | None = None, **options: Any) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return _TellingClient(self._loop, base_url=self.url, headers=headers, timeout=20, trust_env=False, **options)

    # --- what tests do often ------------------------------------------------------------------------------

    def submit(self, type_: str, params: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        answer = self.client.post("/api/jobs", json={"type": type_, "params": params or {}, **fields})
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.client.get(f"/api/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def wait_for(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """The job once it has one of these statuses; of one that has ended also the run has."""
        expected = statuses or ("COMPLETED", "FAILED", "SKIPPED", "CANCELLED")

        def look() -> dict[str, Any] | None:
            job = self.job(job_id)
            run_ended = job["run"] is None or job["run"]["status"] in tuple(RunStatus)
            return job if job["status"] in expected and (run_ended or job["status"] == "RUNNING") else None

        return eventually(look)

    def run_job(self, type_: str, params: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        return self.wait_for(self.submit(type_, params, **fields)["id"])


def unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(6)}"


def problem_of(answer: httpx2.Response, status: int, code: str | None = None) -> dict[str, Any]:
    """The refusal that an answer is, in the form that every one has."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "code"} <= body.keys()
    assert body["status"] == status
    if code is not None:
        assert body["code"] == code, body
    return body
