"""The whole client: the methods that send one request each, and what takes more than that."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from holdbeat.client.job_methods import JobMethods
from holdbeat.client.messages import COMMENT, Message
from holdbeat.client.method import AsyncCaller, segment
from holdbeat.client.schedule_methods import EndpointMethods, ScheduleMethods
from holdbeat.client.system_methods import SystemMethods, direct_body
from holdbeat.client.transport import AsyncTransport
from holdbeat.schemas.jobs import TERMINAL, Job, LogLine
from holdbeat.schemas.schedules import Schedule
from holdbeat.schemas.system import Chunk, Event


class AsyncSchedules(ScheduleMethods[Schedule], AsyncCaller):
    """`client.schedules`."""


class AsyncEndpoints(EndpointMethods, AsyncCaller):
    """`client.endpoints`."""


class AsyncClient(JobMethods, SystemMethods, AsyncTransport):
    """The API of a server as methods. `url` and `key` default to HOLDBEAT_SERVER and HOLDBEAT_KEY.

    Answers are dictionaries as the API sends them. A refusal raises ProblemError, a server that cannot be reached
    Unavailable.
    """

    @property
    def schedules(self) -> AsyncSchedules:
        """The methods for schedules."""
        return AsyncSchedules(self)

    @property
    def endpoints(self) -> AsyncEndpoints:
        """The methods for endpoints: HTTP calls with a schedule."""
        return AsyncEndpoints(self)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- jobs ---------------------------------------------------------------------------------------------

    async def wait_job(self, job_id: str, *, timeout_s: float | None = None, with_retries: bool = True) -> Job:
        """Waits until the job has ended, and with it every automatic retry; returns the last of them.

        Raises TimeoutError when `timeout_s` is over; the job goes on.
        """
        until = self._deadline(timeout_s)
        while True:
            # The job is read after every message, keep-alive comments included, so no single event has to arrive.
            async with aclosing(self.messages("/api/events", query={"job_id": job_id}, until=until)) as messages:
                try:
                    async for _ in messages:
                        job = await self.get_job(job_id)
                        if job["status"] in TERMINAL:
                            break
                except TimeoutError:
                    raise TimeoutError(f"job {job_id} has not ended within {timeout_s:g} s; it goes on") from None
            following = job["continued_by"] or (job["retried_by"] if with_retries else None)
            if following is None:
                return job
            job_id = following

    def follow_logs(self, job_id: str, *, after: int = 0) -> AsyncGenerator[LogLine, None]:
        """Yields lines of the log as they are written, each once, until the run has ended."""
        return self._follow(f"/api/jobs/{segment(job_id)}/logs", "log", after)

    def follow_chunks(self, job_id: str, *, after: int = 0) -> AsyncGenerator[Chunk, None]:
        """Yields what the handler of a job emits, as it does so, until the run has ended."""
        return self._follow(f"/api/jobs/{segment(job_id)}/chunks", "chunk", after)

    # --- direct requests and slots to borrow ---------------------------------------------------------------

    def stream_direct(
        self,
        type: str,
        params: Mapping[str, Any] | None = None,
        *,
        wait_s: float | None = None,
        preempt: bool = False,
    ) -> AsyncGenerator[Message, None]:
        """Runs a job type in the next free slot, and yields what happens: messages with `event` and `data`.

        The events are `waiting`, `granted`, `progress`, `chunk`, and last `result`. A failure raises ProblemError.
        """
        return self.one_stream(f"/api/direct/{segment(type)}", direct_body(params, wait_s, preempt))

    def follow_reservation_chunks(self, reservation_id: str, *, after: int = 0) -> AsyncGenerator[Chunk, None]:
        """Yields what the handler of a direct request emits, as it does so, until the request has ended."""
        return self._follow(f"/api/reservations/{segment(reservation_id)}/chunks", "chunk", after)

    # --- the state of the whole ---------------------------------------------------------------------------

    async def events(
        self, *, after: str | None = None, name: Sequence[str] | None = None, job_id: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yields events as they happen, without end; from the beginning of the log with `after="0"`."""
        query = {"after": after, "name": name, "job_id": job_id}
        async with aclosing(self.messages("/api/events", query=query)) as messages:
            async for message in messages:
                if message.event != COMMENT:
                    yield message.data

    async def metrics(self) -> str:
        """Reads the metrics in the text format of Prometheus."""
        return (await self.fetch("GET", "/metrics")).decode()
