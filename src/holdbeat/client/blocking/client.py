# Made from asynchronous/client.py by tools/unasync.py: change that one, then run `python -m tools.unasync`.
"""The whole client: the methods that send one request each, and what takes more than that."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from holdbeat.client.blocking.transport import Transport
from holdbeat.client.job_methods import JobMethods
from holdbeat.client.messages import COMMENT, Message
from holdbeat.client.method import Caller, segment
from holdbeat.client.schedule_methods import EndpointMethods, ScheduleMethods
from holdbeat.client.slot_loan import SlotLoan, remote_slot
from holdbeat.client.system_methods import SystemMethods, direct_body
from holdbeat.schemas.jobs import TERMINAL, Job, LogLine
from holdbeat.schemas.schedules import Schedule
from holdbeat.schemas.system import Chunk, Event


class Namespace(Caller):
    """Methods whose paths are under one path."""

    base_path: str

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _call(self, verb: str, path: str, **options: Any) -> Any:
        return self._transport.call(verb, self.base_path + path, **options)


class Schedules(ScheduleMethods[Schedule], Namespace):
    """`client.schedules`."""

    base_path = "/api/schedules"


class Endpoints(EndpointMethods, Namespace):
    """`client.endpoints`."""

    base_path = "/api/endpoints"


class Client(JobMethods, SystemMethods, Transport):
    """The API of a server as methods. `url` and `key` default to HOLDBEAT_SERVER and HOLDBEAT_KEY.

    Answers are dictionaries as the API sends them. A refusal raises ProblemError, a server that cannot be reached
    Unavailable.
    """

    @property
    def schedules(self) -> Schedules:
        """The methods for schedules."""
        return Schedules(self)

    @property
    def endpoints(self) -> Endpoints:
        """The methods for endpoints: HTTP calls with a schedule."""
        return Endpoints(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- jobs ---------------------------------------------------------------------------------------------

    def wait_job(self, job_id: str, *, timeout_s: float | None = None, with_retries: bool = True) -> Job:
        """Waits until the job has ended, and with it every automatic retry; returns the last of them.

        Raises TimeoutError when `timeout_s` is over; the job goes on.
        """
        until = self.deadline(timeout_s)
        while True:
            # The job is read after every message, keep-alive comments included, so no single event has to arrive.
            with closing(self.messages("/api/events", query={"job_id": job_id}, until=until)) as messages:
                try:
                    for _ in messages:
                        job = self.get_job(job_id)
                        if job["status"] in TERMINAL:
                            break
                except TimeoutError:
                    raise TimeoutError(f"job {job_id} has not ended within {timeout_s:g} s; it goes on") from None
            following = job["continued_by"] or (job["retried_by"] if with_retries else None)
            if following is None:
                return job
            job_id = following

    def follow_logs(self, job_id: str, *, after: int = 0) -> Generator[LogLine, None, None]:
        """Yields lines of the log as they are written, each once, until the run has ended."""
        return self._follow(f"/api/jobs/{segment(job_id)}/logs", "log", after)

    def follow_chunks(self, job_id: str, *, after: int = 0) -> Generator[Chunk, None, None]:
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
    ) -> Generator[Message, None, None]:
        """Runs a job type in the next free slot, and yields what happens: messages with `event` and `data`.

        The events are `waiting`, `granted`, `progress`, `chunk`, and last `result`. A failure raises ProblemError.
        """
        return self.one_stream(f"/api/direct/{segment(type)}", direct_body(params, wait_s, preempt))

    def follow_reservation_chunks(self, reservation_id: str, *, after: int = 0) -> Generator[Chunk, None, None]:
        """Yields what the handler of a direct request emits, as it does so, until the request has ended."""
        return self._follow(f"/api/reservations/{segment(reservation_id)}/chunks", "chunk", after)

    def slot(self, resource: str, *, ttl_s: float = 60, wait_s: float | None = None) -> SlotLoan:
        """A slot of the resource for work of your own, held while a `with` or `with` block runs."""
        return remote_slot(self.url, self._key, resource, ttl_s=ttl_s, wait_s=wait_s)

    # --- the state of the whole ---------------------------------------------------------------------------

    def events(
        self, *, after: str | None = None, name: Sequence[str] | None = None, job_id: str | None = None
    ) -> Generator[Event, None, None]:
        """Yields events as they happen, without end; from the beginning of the log with `after="0"`."""
        query = {"after": after, "name": name, "job_id": job_id}
        with closing(self.messages("/api/events", query=query)) as messages:
            for message in messages:
                if message.event != COMMENT:
                    yield message.data

    def metrics(self) -> str:
        """Reads the metrics in the text format of Prometheus."""
        return (self.fetch("GET", "/metrics")).decode()
