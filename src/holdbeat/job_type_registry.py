"""JobTypeRegistry: the job types of an App, by name and by function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from holdbeat.domain.bounds import Duration
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import RetryPolicy
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.wait_calls import name_function
from holdbeat.pending_job import refuse_unknown_options

P = ParamSpec("P")
R = TypeVar("R")


class JobTypeRegistry:
    """Registers functions as job types and finds them again."""

    def __init__(self) -> None:
        self._types: dict[str, JobType] = {}
        self._by_function: dict[Any, JobType] = {}
        self._lock = threading.RLock()

    def _types_changed(self, added: JobType) -> None:
        """Called under the lock when a type was added."""

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
        partition: str | None = None,
        title: str | None = None,
        weight: int = 1,
        affinity: str | None = None,
        preemptible: bool = False,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Registers a function as a job type: `@app.job` or `@app.job(retries=3)`. Returns the function unchanged."""
        if isinstance(function, str):
            raise Invalid(
                f"A job type is named by a keyword: write @app.job(name={function!r}).",
                code="bad_job_type",
                field="name",
            )
        if function is None:
            return lambda wrapped: self.job_with(wrapped, **options)
        return self.job_with(function)

    def job_with(self, function: Callable[P, R], **options: Any) -> Callable[P, R]:
        """Registers a function as a job type, as `@app.job(...)` does, by a plain call."""
        refuse_unknown_options(options)
        self.add_type(JobType.from_function(function, **options))
        return function

    def add_type(self, job_type: JobType) -> None:
        """Registers a JobType that you made yourself."""
        for name in job_type.names:
            if name in self._types or name in ("http", "shell"):
                raise Invalid(
                    f"The job type {name} is registered already. Give one of the two another name.",
                    code="bad_job_type",
                    field="name",
                )
        with self._lock:
            for name in job_type.names:
                self._types[name] = job_type
            if job_type.function is not None:
                self._by_function[job_type.function] = job_type
                name_function(job_type.function, job_type.name)
            self._types_changed(job_type)

    def type_name(self, target: Callable[..., Any] | str) -> str:
        """The job type's name for a registered function or a name."""
        if isinstance(target, str):
            return target
        job_type = self._by_function.get(target)
        if job_type is None:
            raise Invalid(
                f"{getattr(target, '__name__', target)!s} is not a job type of this App. Decorate it with @app.job.",
                code="unknown_type",
                field="type",
            )
        return job_type.name
