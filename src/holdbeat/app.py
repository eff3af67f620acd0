"""App: the Python API. It registers job types, enqueues jobs, runs them and waits for them.

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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdbeat.actors import by_program, this_program
from holdbeat.app_store import AppStore
from holdbeat.client.slot_loan import SlotLoan
from holdbeat.domain.bounds import Duration, check_choice, duration_s
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid
from holdbeat.domain.group import GroupMode, JobGroup, OnFailure, check_then_when
from holdbeat.domain.job import Job, JobTemplate
from holdbeat.domain.limit import limit_of
from holdbeat.domain.reservation import ReservationOutcome
from holdbeat.domain.schedule import Schedule
from holdbeat.engine.supervisor import Supervisor
from holdbeat.handlers.to_json import as_params
from holdbeat.job_handle import JobHandle
from holdbeat.pending_job import OPTIONS, CallOptions, PendingJob, connection_of, refuse_connection, submissions_of
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.jobs.submit import submit, submit_group, submit_group_with_then
from holdbeat.store.queue.templates import save_template
from holdbeat.store.schedules.schedules import save_named_schedule

__all__ = ["App", "DirectFailed", "PendingJob"]

R = TypeVar("R")
Target = Callable[..., Any] | str | JobTemplate
"""What a job is made of: a function of the App, the name of a job type, or a template."""

_NEEDS_RUNNING = (
    "Direct requests need a running App: use `async with app.running():`, or ask a server with holdbeat.Client."
)


class DirectFailed(HoldbeatError):
    """A direct request ended otherwise than COMPLETED."""

    default_code = "direct_failed"


class App(AppStore):
    """Registers job types, enqueues jobs and runs them.

    `store` is `sqlite:///file.db` or `postgresql://…`; without it the settings decide (`holdbeat.toml`, HOLDBEAT_STORE,
    else ./holdbeat.db). Further keywords change single settings. The store is opened when it is first needed.
    """

    def limit(
        self,
        name: str,
        *,
        resource: str | None = None,
        type: str | None = None,
        slots: int | None = None,
        rate: Mapping[str, Any] | None = None,
        per_partition: bool = False,
        fair: bool = False,
        weights: Mapping[str, int] | None = None,
    ) -> None:
        """Declares a limit for all workers of the store, stored when this App starts to run.

        It covers the work of the resource and of the type; with neither, everything. Settings (`[limits.NAME]`) with
        the same name go before it, and so does what an operator has set.
        """
        values = {
            "resource": resource, "type": type, "slots": slots, "rate": rate, "per_partition": per_partition,
            "fair": fair, "weights": weights,
        }  # fmt: skip
        declared = {key: value for key, value in values.items() if value}
        if slots is not None:
            declared["slots"] = slots
        limit_of(name, declared)
        self.settings = self.settings.with_changes(limits={name: declared, **self.settings.limits})
        if self._store is not None:
            self._store.terms.limits = self.settings.declared_limits

    # --- enqueueing --------------------------------------------------------------------------------------

    def with_options(self, **options: Any) -> App:
        """The same App with options for what is enqueued next.

        `priority`, `resource`, `not_before`, `delay`, `timeout`, `key`, `labels`, `webhook_url`, `title`, `retries`,
        `cancel_grace`, `after` (jobs, groups, or calls of the same `enqueue_many`, as a list or a dict by name) with
        `on_upstream`, and `connection`: your own open transaction; the jobs are stored only if you commit it.
        """
        unknown = options.keys() - OPTIONS
        if unknown:
            raise Invalid(
                f"There is no option {min(unknown)}. Options are: {', '.join(sorted(OPTIONS))}.", field=min(unknown)
            )
        twin = object.__new__(App)
        own = CallOptions({**self._options, **options})
        twin.__dict__ = {**self.__dict__, "_options": own, "_original": self._origin}
        return twin

    def call(self, target: Target, /, **params: Any) -> PendingJob:
        """Describes a job for `enqueue_many` and `group`, and stores nothing."""
        if isinstance(target, JobTemplate):
            return self.call_template(target.id, **params)
        return PendingJob(self.type_name(target), as_params(params), self._options)

    def call_template(self, name: str, /, **params: Any) -> PendingJob:
        """Describes a job from the template with this name or id; `params` replace those of the template."""
        return PendingJob(None, as_params(params), self._options, name)

    async def enqueue_template(self, name: str, /, **params: Any) -> JobHandle:
        """Stores one job from the template with this name or id."""
        return (await self.enqueue_many([self.call_template(name, **params)]))[0]

    def enqueue_template_sync(self, name: str, /, **params: Any) -> JobHandle:
        """`enqueue_template` for programs without an event loop."""
        return self.enqueue_many_sync([self.call_template(name, **params)])[0]

    async def signal(self, job_id: str, name: str, payload: Any = None) -> None:
        """Sends a signal to the chain of a job, for its handler's `ctx.wait_for`. An ended chain is a Conflict."""
        store = await self._store_for_loop()
        await store.write(by_program, send_signal, job_id, name, payload, this_program())

    def signal_sync(self, job_id: str, name: str, payload: Any = None) -> None:
        """`signal` for programs without an event loop."""
        self.store.write_sync(by_program, send_signal, job_id, name, payload, this_program())

    async def enqueue(self, target: Target, /, **params: Any) -> JobHandle:
        """Stores one job. When this returns, the job is committed and will run."""
        return (await self.enqueue_many([self.call(target, **params)]))[0]

    def enqueue_sync(self, target: Target, /, **params: Any) -> JobHandle:
        """`enqueue` for programs without an event loop."""
        return self.enqueue_many_sync([self.call(target, **params)])[0]

    async def enqueue_many(self, calls: Sequence[PendingJob]) -> list[JobHandle]:
        """Stores several jobs in one transaction: all or none."""
        store, enqueued = await self._submit(calls, submit)
        return [JobHandle(store, job) for job in enqueued.handed_out()]

    def enqueue_many_sync(self, calls: Sequence[PendingJob]) -> list[JobHandle]:
        """`enqueue_many` for programs without an event loop."""
        store, enqueued = self._submit_sync(calls, submit)
        return [JobHandle(store, job) for job in enqueued.handed_out()]

    async def _submit(
        self, calls: Sequence[PendingJob], verb: Callable[..., R], *args: Any
    ) -> tuple[PersistenceAdapter, R]:
        app = self._in_this_process()
        connection = connection_of(self._options, calls)
        if connection is not None:
            opened = await asyncio.to_thread(app._opened)
            usable = opened.for_thread(connection, asyncio.get_running_loop())
            if usable is not connection:
                return await asyncio.to_thread(self._submit_joined, usable, calls, verb, *args)
            return self._submit_joined(connection, calls, verb, *args)
        submissions = submissions_of(calls)
        store = await self._store_for_loop()
        return store, await store.write(verb, *args, submissions)

    def _submit_sync(
        self, calls: Sequence[PendingJob], verb: Callable[..., R], *args: Any
    ) -> tuple[PersistenceAdapter, R]:
        connection = connection_of(self._options, calls)
        if connection is not None:
            return self._submit_joined(connection, calls, verb, *args)
        store = self.store
        return store, store.write_sync(verb, *args, submissions_of(calls))

    def _submit_joined(
        self, connection: Any, calls: Sequence[PendingJob], verb: Callable[..., R], *args: Any
    ) -> tuple[PersistenceAdapter, R]:
        submissions = submissions_of(calls)
        store = self._joining(connection)
        return store, store.write_joined(connection, verb, *args, submissions)

    # --- groups, templates, schedules, direct requests ---------------------------------------------------

    async def group(
        self,
        calls: Sequence[PendingJob],
        *,
        name: str | None = None,
        mode: str = "sequential",
        on_failure: str = "stop",
        then: PendingJob | None = None,
        then_when: str = "completed",
    ) -> tuple[JobGroup, list[JobHandle]]:
        """Stores several jobs that belong together, as one group.

        `then` is a job that runs when the group has ended: `always`, or only if it has `completed`. Its handler reads
        the results of the members as `ctx.upstream["group"]`.
        """
        members, verb, args = _group_submission(calls, name, mode, on_failure, then, then_when)
        store, (group, jobs) = await self._submit(members, verb, *args)
        return group, [JobHandle(store, job) for job in jobs]

    def group_sync(
        self,
        calls: Sequence[PendingJob],
        *,
        name: str | None = None,
        mode: str = "sequential",
        on_failure: str = "stop",
        then: PendingJob | None = None,
        then_when: str = "completed",
    ) -> tuple[JobGroup, list[JobHandle]]:
        """`group` for programs without an event loop."""
        members, verb, args = _group_submission(calls, name, mode, on_failure, then, then_when)
        store, (group, jobs) = self._submit_sync(members, verb, *args)
        return group, [JobHandle(store, job) for job in jobs]

    async def template(self, name: str, target: Callable[..., Any] | str, /, **fields: Any) -> JobTemplate:
        """Makes or changes the template with this name. `fields` are those of a JobTemplate, such as default_params."""
        refuse_connection(self._options, "A template")
        store = await self._store_for_loop()
        return await store.write(by_program, save_template, name, self.type_name(target), fields)

    def template_sync(self, name: str, target: Callable[..., Any] | str, /, **fields: Any) -> JobTemplate:
        """`template` for programs without an event loop."""
        refuse_connection(self._options, "A template")
        return self.store.write_sync(by_program, save_template, name, self.type_name(target), fields)

    async def schedule(self, name: str, target: Target, /, *, every: Duration | None = None, **fields: Any) -> Schedule:
        """Makes the schedule with this name, or changes it to these fields.

        The same declaration again changes nothing. A field that an operator has changed is set back if it is declared.
        Pass `cron` or `every`, and other fields of a Schedule: `params`, `timezone`, `adaptive`, `overlap`, …
        """
        store = await self._store_for_loop()
        return await store.write(by_program, save_named_schedule, name, self._scheduled(target, every, fields))

    def schedule_sync(self, name: str, target: Target, /, *, every: Duration | None = None, **fields: Any) -> Schedule:
        """`schedule` for programs without an event loop."""
        return self.store.write_sync(by_program, save_named_schedule, name, self._scheduled(target, every, fields))

    def _scheduled(self, target: Target, every: Duration | None, fields: dict[str, Any]) -> dict[str, Any]:
        refuse_connection(self._options, "A schedule")
        if every is not None:
            fields["interval_s"] = duration_s(every, field="every")
        if isinstance(target, JobTemplate):
            return {**fields, "template_id": target.id}
        return {**fields, "type": self.type_name(target)}

    async def direct(self, target: Callable[..., Any] | str, /, *, wait_s: float | None = None, **params: Any) -> Any:
        """Runs a job type in the next free slot, ahead of the queue, and returns its result."""
        refuse_connection(self._options, "A direct request")
        supervisor = self._in_this_process()._supervisor
        if supervisor is None:
            raise Conflict(_NEEDS_RUNNING, code="not_running")
        preempt = bool(self._options.get("preempt"))
        name = self.type_name(target)
        result = await supervisor.direct.request(name, as_params(params), wait_s, preempt=preempt)
        reservation = result.reservation
        if reservation.outcome is not ReservationOutcome.COMPLETED:
            raise DirectFailed(
                f"The direct request {reservation.id} ended {reservation.outcome or reservation.status}: "
                f"{reservation.error}",
                code=reservation.error_kind or "direct_failed",
            )
        return reservation.result

    def direct_sync(self, target: Callable[..., Any] | str, /, *, wait_s: float | None = None, **params: Any) -> Any:
        """`direct` for another thread than that of the event loop in which the App runs."""
        app = self._in_this_process()
        loop = app._supervisor._loop if app._supervisor is not None else None
        if loop is None:
            raise Conflict(_NEEDS_RUNNING, code="not_running")
        return asyncio.run_coroutine_threadsafe(app.direct(target, wait_s=wait_s, **params), loop).result()

    def slot(self, resource: str, *, ttl: Duration = 60, wait: Duration | None = None) -> SlotLoan:
        """A slot of the resource for work of your own: `async with app.slot("gpu") as slot:`, or a plain `with`.

        It waits for the next free slot, ahead of the queue, for at most `wait` (`direct_wait_s` by default). While the
        block runs the slot is extended; if this process dies, it is lost after `ttl`. The App need not run.
        """
        from holdbeat.client.local_lender import local_slot

        wait_s = None if wait is None else duration_s(wait)
        return local_slot(lambda: self.store, self.settings, resource, ttl_s=duration_s(ttl), wait_s=wait_s)

    # --- running -----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[App]:
        """Runs a worker for this App, with schedules and webhooks, in this event loop until the block ends."""
        from holdbeat.engine.schedule_trigger import ScheduleTrigger
        from holdbeat.engine.webhook_service import WebhookService

        if changes:
            self.settings = self.settings.with_changes(**changes)
        store = await self._store_for_loop()
        supervisor = Supervisor(
            store,
            self.settings,
            self.job_types,
            kind="embed",
            more_services=[
                ScheduleTrigger.for_settings(store, self.settings),
                WebhookService.for_settings(store, self.settings),
                *self.hook_services(store),
            ],
        )
        self._supervisor = supervisor
        try:
            await supervisor.start()
            yield self
        finally:
            await supervisor.stop()
            self._supervisor = None


def _group_submission(
    calls: Sequence[PendingJob],
    name: str | None,
    mode: str,
    on_failure: str,
    then: PendingJob | None,
    then_when: str,
) -> tuple[Sequence[PendingJob], Callable[..., tuple[JobGroup, list[Job]]], tuple[Any, ...]]:
    """The jobs that a group stores, the verb that stores them, and its arguments before the jobs."""
    args = (name, check_choice(GroupMode, mode, "mode"), check_choice(OnFailure, on_failure, "on_failure"))
    when = check_then_when(then_when, has_then=then is not None)
    if then is None:
        return calls, submit_group, args
    return [*calls, then], submit_group_with_then, (*args, when)
