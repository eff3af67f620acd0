"""App: the Python face of Holdbeat. Job types are registered here, and jobs enqueued, run and waited for.

app = App()                          # ./holdbeat.db, or App("postgresql://…")

@app.job(retries=3)
async def story(ctx: Context, prompt: str) -> dict: ...

job = await app.enqueue(story, prompt="a fox")
async with app.running():            # in a script, a FastAPI lifespan, a test
    done = await job.wait()
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, overload

from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.clock import Clock
from holdbeat.domain.duration import Duration, duration_s
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid
from holdbeat.domain.group import GroupMode, JobGroup, OnFailure
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import RetryPolicy
from holdbeat.domain.reservation import ReservationOutcome
from holdbeat.domain.submission import Submission
from holdbeat.domain.template import JobTemplate
from holdbeat.engine.queue_manager import QueueManager
from holdbeat.engine.supervisor import Supervisor, announcement
from holdbeat.handlers.http_handler import http_job_type
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.outbound import Outbound
from holdbeat.handlers.shell import shell_job_type
from holdbeat.job_handle import JobHandle
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.opening import open_store
from holdbeat.store.transaction import StoreTerms
from holdbeat.store.verbs.job_types import announce
from holdbeat.store.verbs.templates import save_template

P = ParamSpec("P")
R = TypeVar("R")


class DirectFailed(HoldbeatError):
    """A direct request ended otherwise than COMPLETED."""

    default_code = "direct_failed"


@dataclass(frozen=True, slots=True)
class Call:
    """A job type with its params, not yet enqueued: what groups and batches are made of."""

    type: str
    params: Mapping[str, Any]
    options: Mapping[str, Any]


class App:
    """Registers job types and opens the store when it is first needed."""

    def __init__(
        self, store: str | None = None, *, settings: Settings | None = None, clock: Clock | None = None, **changes: Any
    ) -> None:
        if settings is None:
            settings = Settings.load()
        if store is not None:
            changes["store"] = store
        self.settings = settings.with_changes(**changes) if changes else settings
        self._clock = clock
        self._types: dict[str, JobType] = {}
        self._by_function: dict[Any, JobType] = {}
        self._store: PersistenceAdapter | None = None
        self._is_announced = False
        self._lock = threading.RLock()
        self._supervisor: Supervisor | None = None
        self._options: dict[str, Any] = {}

    # --- job types ---------------------------------------------------------------------------------------

    @overload
    def job(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def job(
        self,
        /,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        resource: str = "default",
        timeout: Duration | None = None,
        retries: int | RetryPolicy | None = None,
        isolation: str | None = None,
        priority: int = 0,
        cancel_grace: Duration | None = 10.0,
        labels: Mapping[str, str] | None = None,
        webhook_url: str | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Registers a function as a job type and gives it back unchanged: it stays callable."""
        if function is None:
            return lambda wrapped: self.job_with(wrapped, **options)
        return self.job_with(function)

    def job_with(self, function: Callable[P, R], **options: Any) -> Callable[P, R]:
        """What `@app.job(...)` does, as a plain call."""
        self.add_type(JobType.from_function(function, **options))
        return function

    def add_type(self, job_type: JobType) -> None:
        """Registers a job type that was made by hand."""
        for name in job_type.names:
            if name in self._types or name in ("http", "shell"):
                raise Invalid(
                    f"The job type {name} is registered already. Give one of the two another name.",
                    code="bad_job_type",
                    field="name",
                )
        for name in job_type.names:
            self._types[name] = job_type
        if job_type.function is not None:
            self._by_function[job_type.function] = job_type
        self._is_announced = False

    @property
    def job_types(self) -> list[JobType]:
        """All job types this App can run, the built-in ones included."""
        outbound = Outbound(OutboundPolicy(self.settings.is_on_loopback, self.settings.outbound_allow))
        own = list({id(job_type): job_type for job_type in self._types.values()}.values())
        built_in = [http_job_type(outbound)]
        if self.settings.allow_shell:
            built_in.append(shell_job_type(allowed=True))
        return own + built_in

    def type_name(self, target: Callable[..., Any] | str) -> str:
        """The job type's name for a registered function or a name."""
        if isinstance(target, str):
            return target
        found = self._by_function.get(target)
        if found is None:
            raise Invalid(
                f"{getattr(target, '__name__', target)!s} is not a job type of this App. Decorate it with @app.job.",
                code="unknown_type",
                field="type",
            )
        return found.name

    # --- the store ---------------------------------------------------------------------------------------

    @property
    def store(self) -> PersistenceAdapter:
        """The store, opened and told of this App's job types."""
        with self._lock:
            if self._store is None:
                terms = StoreTerms(IdSource(), self.settings.concurrency_policy, self.settings.aging_s)
                self._store = open_store(self.settings.store, terms, clock=self._clock)
            if not self._is_announced:
                self._is_announced = True
                self._store.write_sync(announce, [announcement(job_type) for job_type in self.job_types])
            return self._store

    def close(self) -> None:
        """Closes the store; it is opened again when it is needed."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None
                self._is_announced = False

    @property
    def queue(self) -> QueueManager:
        return QueueManager(self.store)

    # --- enqueueing --------------------------------------------------------------------------------------

    def with_options(self, **options: Any) -> App:
        """The same App with options for what is enqueued next.

        `priority`, `resource`, `not_before`, `delay`, `timeout`, `key`, `labels`, `webhook_url`, `retries`,
        `cancel_grace`, and `connection`: your own open transaction, which the jobs then live and die with.
        """
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise Invalid(
                f"There is no option {min(unknown)}. Options are: {', '.join(sorted(_OPTIONS))}.", field=min(unknown)
            )
        twin = object.__new__(App)
        twin.__dict__ = {**self.__dict__, "_options": {**self._options, **options}, "_original": self._origin}
        return twin

    @property
    def _origin(self) -> App:
        original: App = self.__dict__.get("_original", self)
        return original

    def call(self, target: Callable[..., Any] | str, /, **params: Any) -> Call:
        """A job to be: for `enqueue_many` and `group`."""
        return Call(self.type_name(target), params, self._options)

    async def enqueue(self, target: Callable[..., Any] | str, /, **params: Any) -> JobHandle:
        """Stores one job. When this returns it is on disk and will run."""
        return (await self.enqueue_many([self.call(target, **params)]))[0]

    def enqueue_sync(self, target: Callable[..., Any] | str, /, **params: Any) -> JobHandle:
        """`enqueue` for programs without an event loop."""
        return self.enqueue_many_sync([self.call(target, **params)])[0]

    async def enqueue_many(self, calls: Sequence[Call]) -> list[JobHandle]:
        """Stores several jobs in one transaction: all or none."""
        app = self._origin
        if self._options.get("connection") is not None:
            return self.enqueue_many_sync(calls)
        store = await asyncio.to_thread(lambda: app.store) if app._store is None else app.store
        enqueued = await QueueManager(store).submit([_submission(call) for call in calls])
        return [JobHandle(app.store, job) for job in enqueued.jobs]

    def enqueue_many_sync(self, calls: Sequence[Call]) -> list[JobHandle]:
        """`enqueue_many` for programs without an event loop."""
        app = self._origin
        submissions = [_submission(call) for call in calls]
        connection = self._options.get("connection")
        queue = QueueManager(app.store)
        enqueued = (
            queue.submit_sync(submissions) if connection is None else queue.submit_joined(connection, submissions)
        )
        return [JobHandle(app.store, job) for job in enqueued.jobs]

    # --- groups, templates, direct requests --------------------------------------------------------------

    async def group(
        self,
        calls: Sequence[Call],
        *,
        name: str | None = None,
        mode: str = "sequential",
        on_failure: str = "stop",
    ) -> tuple[JobGroup, list[JobHandle]]:
        """Stores several jobs with a common fate."""
        app = self._origin
        group, jobs = await QueueManager(app.store).submit_group(
            name, GroupMode(mode), OnFailure(on_failure), [_submission(call) for call in calls]
        )
        return group, [JobHandle(app.store, job) for job in jobs]

    def group_sync(
        self, calls: Sequence[Call], *, name: str | None = None, mode: str = "sequential", on_failure: str = "stop"
    ) -> tuple[JobGroup, list[JobHandle]]:
        """`group` for programs without an event loop."""
        app = self._origin
        group, jobs = QueueManager(app.store).submit_group_sync(
            name, GroupMode(mode), OnFailure(on_failure), [_submission(call) for call in calls]
        )
        return group, [JobHandle(app.store, job) for job in jobs]

    async def template(self, name: str, target: Callable[..., Any] | str, /, **fields: Any) -> JobTemplate:
        """Makes or changes the template of that name. Fields are those of a JobTemplate, e.g. default_params."""
        return await self._origin.store.write(save_template, name, self.type_name(target), fields)

    def template_sync(self, name: str, target: Callable[..., Any] | str, /, **fields: Any) -> JobTemplate:
        """`template` for programs without an event loop."""
        return self._origin.store.write_sync(save_template, name, self.type_name(target), fields)

    async def direct(self, target: Callable[..., Any] | str, /, *, wait_s: float | None = None, **params: Any) -> Any:
        """Runs a job type in the next free slot, ahead of the queue, and returns its result."""
        app = self._origin
        supervisor = app._supervisor
        if supervisor is None:
            raise Conflict(
                "Direct requests need a running App: use `async with app.running():`, or ask a server with "
                "holdbeat.Client.",
                code="not_running",
            )
        result = await supervisor.direct.request(self.type_name(target), params, wait_s)
        reservation = result.reservation
        if reservation.outcome is not ReservationOutcome.COMPLETED:
            raise DirectFailed(
                f"The direct request {reservation.id} ended {reservation.outcome or reservation.status}: "
                f"{reservation.error}",
                code=reservation.error_kind or "direct_failed",
            )
        return reservation.result

    def direct_sync(self, target: Callable[..., Any] | str, /, *, wait_s: float | None = None, **params: Any) -> Any:
        """`direct` for a thread beside the loop in which the App runs."""
        app = self._origin
        loop = app._supervisor._loop if app._supervisor is not None else None
        if loop is None:
            raise Conflict("Direct requests need a running App.", code="not_running")
        return asyncio.run_coroutine_threadsafe(app.direct(target, wait_s=wait_s, **params), loop).result()

    # --- running -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[App]:
        """Runs workers for this App's jobs inside the caller's event loop until the block ends."""
        from holdbeat.engine.schedule_trigger import ScheduleTrigger
        from holdbeat.engine.webhook_service import WebhookService

        if changes:
            self.settings = self.settings.with_changes(**changes)
        store = await asyncio.to_thread(lambda: self.store)
        supervisor = Supervisor(
            store,
            self.settings,
            self.job_types,
            kind="embed",
            more_services=[
                ScheduleTrigger.for_settings(store, self.settings),
                WebhookService.for_settings(store, self.settings),
            ],
        )
        self._supervisor = supervisor
        await supervisor.start()
        try:
            yield self
        finally:
            await supervisor.stop()
            self._supervisor = None


_OPTIONS = frozenset(
    {
        "priority", "resource", "not_before", "delay", "timeout", "key", "labels", "webhook_url", "retries",
        "cancel_grace", "connection",
    }
)  # fmt: skip


def _submission(call: Call) -> Submission:
    """A Call in the form that every way in uses."""
    options = call.options
    given: dict[str, Any] = {"type": call.type, "params": dict(call.params)}
    for name in ("priority", "resource", "not_before", "labels", "webhook_url"):
        given[name] = options.get(name)
    given["idempotency_key"] = options.get("key")
    for name, field in (("delay", "delay_s"), ("timeout", "timeout_s")):
        if options.get(name) is not None:
            given[field] = duration_s(options[name], field=name)
    if "cancel_grace" in options:
        grace = options["cancel_grace"]
        given["cancel_grace_s"] = None if grace is None else duration_s(grace, field="cancel_grace")
    retries = options.get("retries")
    if retries is not None:
        given["retry_policy"] = {"max_attempts": retries} if isinstance(retries, int) else retries
    return Submission.read(given)
