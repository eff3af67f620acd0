"""The JobType: a named function with the policy and the parameter schema that its Jobs are made with.

Guards QUE-06 from the inside: what a submission is checked against is generated from the very signature that
will be called, so params that were accepted can be bound.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from holdbeat.domain.bounds import check_whole_number, duration_s
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import DEFAULT_CANCEL_GRACE_S, DEFAULT_RESOURCE, RetryPolicy
from holdbeat.domain.params import check_json, check_labels, storable_text
from holdbeat.domain.schema import Schema, validate
from holdbeat.domain.submission import check_priority, check_resource, check_webhook_url
from holdbeat.domain.title import check_pattern
from holdbeat.handlers.context import Context, SyncContext
from holdbeat.handlers.outcome import as_json, describe
from holdbeat.handlers.param_types import Shape, ShapeMaker, resolved_hints
from holdbeat.schemas.field_bounds import ATTEMPTS_MAX, HEAVIEST

if TYPE_CHECKING:
    from holdbeat.handlers.handler import Handler

__all__ = ["JobType", "Target", "as_json", "duration_s"]

Isolation = Literal["none", "process"]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,119}")


@dataclass(frozen=True, slots=True)
class Target:
    """The place at which another process finds the function: a module by name, or a script by its path."""

    module: str
    qualname: str
    script: str | None = None

    @staticmethod
    def of(function: Callable[..., Any], name: str) -> Target:
        """Refuses functions that another process could not find again."""
        qualname = getattr(function, "__qualname__", "")
        module = getattr(function, "__module__", None)
        owner = getattr(function, "__self__", None)
        is_bound = owner is not None and not isinstance(owner, type | ModuleType)
        if not qualname or not module or "<" in qualname or is_bound:
            raise _refused(
                f"Job type {name} is isolated in a process of its own, which has to import its function by "
                "name; define it with def at the top of a module.",
                field="isolation",
            )
        if module != "__main__":
            return Target(module, qualname)
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name:
            return Target(spec.name, qualname)
        script = getattr(main, "__file__", None)
        if script is None:
            raise _refused(
                f"Job type {name} is isolated in a process of its own, but was defined at a prompt; put it "
                "into a module.",
                field="isolation",
            )
        return Target("__main__", qualname, script)


@dataclass(frozen=True, slots=True)
class JobType:
    name: str
    function: Callable[..., Any] | None
    """None for the built-in types, which bring a `handler` instead."""
    schema: Schema
    aliases: tuple[str, ...] = ()
    is_async: bool = False
    isolation: Isolation = "none"
    resource: str = DEFAULT_RESOURCE
    timeout_s: float | None = None
    retry_policy: RetryPolicy | None = None
    priority: int = 0
    cancel_grace_s: float | None = DEFAULT_CANCEL_GRACE_S
    labels: dict[str, str] = field(default_factory=dict)
    webhook_url: str | None = None
    partition: str | None = None
    """The param whose value is the partition of each job."""
    weight: int = 1
    """How many slots of its resource each job takes."""
    affinity: str | None = None
    """The param whose value a worker keeps something loaded for, such as a model."""
    preemptible: bool = False
    """Whether a job may be interrupted, and tried again, for one that was submitted to preempt."""
    title: str | None = None
    """The pattern of its jobs' titles, such as `Story: {prompt}`."""
    description: str = ""
    handler: Handler | None = None
    context_name: str | None = None
    """The parameter that takes the Context."""
    target: Target | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    other_shape: Shape | None = None
    """What `**kwargs` takes."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @staticmethod
    def from_function(
        function: Callable[..., Any],
        name: str | None = None,
        *,
        aliases: Sequence[str] = (),
        resource: str = DEFAULT_RESOURCE,
        timeout: float | str | timedelta | None = None,
        retries: int | RetryPolicy | None = None,
        isolation: str | None = None,
        priority: int = 0,
        cancel_grace: float | str | timedelta | None = DEFAULT_CANCEL_GRACE_S,
        labels: Mapping[str, str] | None = None,
        webhook_url: str | None = None,
        partition: str | None = None,
        title: str | None = None,
        weight: int = 1,
        affinity: str | None = None,
        preemptible: bool = False,
    ) -> JobType:
        """Makes a job type of a function; `cancel_grace=None` means that it is never killed.

        Its name is the function's unless given. Refuses signatures whose arguments JSON cannot carry.
        """
        bare = _unwrapped(function)
        name = check_type_name(name if name is not None else getattr(bare, "__name__", type(bare).__name__))
        if isolation not in (None, "none", "process"):
            raise _refused("isolation must be 'none' or 'process'.", field="isolation")
        check_priority(priority)
        if timeout is not None and duration_s(timeout, field="timeout") <= 0:
            raise _refused("timeout must be longer than 0.", field="timeout")
        called = bare if inspect.isroutine(bare) else getattr(bare, "__call__", bare)  # noqa: B004
        parameters = _parameters(function, called, name)
        _check_params_named(parameters, name, partition=partition, affinity=affinity)
        return JobType(
            name=name,
            function=function,
            schema=parameters.schema,
            aliases=tuple(check_type_name(alias) for alias in aliases),
            is_async=inspect.iscoroutinefunction(called),
            isolation="process" if isolation == "process" else "none",
            resource=check_resource(resource),
            timeout_s=None if timeout is None else duration_s(timeout, field="timeout"),
            retry_policy=_retry_policy(retries),
            priority=priority,
            cancel_grace_s=None if cancel_grace is None else duration_s(cancel_grace, field="cancel_grace"),
            labels=check_labels(dict(labels or {})),
            webhook_url=None if webhook_url is None else check_webhook_url(webhook_url),
            partition=partition,
            weight=check_whole_number(weight, "weight", 1, HEAVIEST),
            affinity=affinity,
            preemptible=preemptible,
            title=None
            if title is None
            else check_pattern(title, parameters.shapes, takes_others=parameters.other_shape is not None),
            description=(inspect.getdoc(bare) or "").partition("\n\n")[0],
            context_name=parameters.context_name,
            target=Target.of(function, name) if isolation == "process" else None,
            shapes=parameters.shapes,
            other_shape=parameters.other_shape,
        )

    def check(self, params: Any) -> None:
        """Refuses params that the function could not be called with."""
        check_json(params, field="params")
        validate(self.schema, params)

    def bind(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function: checked, and converted to the annotated types."""
        if not params and not self.schema.get("required"):
            return {}
        validate(self.schema, dict(params))
        kwargs = {}
        for name, value in params.items():
            shape = self.shapes.get(name, self.other_shape)
            try:
                kwargs[name] = value if shape is None else shape.value(value)
            except Exception as error:  # a dataclass's or model's own checks
                raise Invalid(
                    storable_text(f"params.{name} is refused: {describe(error)}", 2000),
                    code="invalid_params",
                    field=f"params.{name}",
                ) from error
        return kwargs


def _refused(detail: str, *, field: str) -> Invalid:
    """What is wrong with a job type."""
    return Invalid(detail, code="bad_job_type", field=field)


def check_type_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refused(
            f"{str(name)[:120]!r} cannot name a job type; use up to 120 letters, digits, and . _ : - "
            "(lambdas need a name of their own).",
            field="name",
        )
    return name


def _retry_policy(retries: Any) -> RetryPolicy | None:
    """How often it is tried again, as a number or a whole policy."""
    if retries is None or isinstance(retries, RetryPolicy):
        return retries
    return RetryPolicy(max_attempts=check_whole_number(retries, "retries", 0, ATTEMPTS_MAX))


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


@dataclass(frozen=True, slots=True)
class _Parameters:
    schema: Schema
    shapes: dict[str, Shape]
    other_shape: Shape | None
    context_name: str | None


def _parameters(function: Callable[..., Any], called: Any, name: str) -> _Parameters:
    """Reads a signature: which parameter takes the Context, and what the others take."""
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise _refused(
            f"Job type {name} is a generator; a handler returns once. Use return in place of yield.", field=name
        )
    maker = ShapeMaker()
    context_name: str | None = None
    shapes: dict[str, Shape] = {}
    required: list[str] = []
    additional: Shape | None = None
    properties: dict[str, Schema] = {}
    signature = inspect.signature(function)
    raw = dict(getattr(inspect.unwrap(called), "__annotations__", {}))
    context_name = _context_parameter(signature, raw)
    hints = _hints(called, name, context_name)
    for parameter in signature.parameters.values():
        place = f"{name}({parameter.name})"
        if parameter.name == context_name:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise _refused(
                f"{place} takes its argument by position, but params have names; make it an ordinary one.", field=place
            )
        shape = maker.shape(hints.get(parameter.name, Any), place)
        if parameter.kind is parameter.VAR_KEYWORD:
            additional = shape
            continue
        schema = shape.schema
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            if parameter.default is None and "anyOf" not in schema:
                shape = maker.nullable(shape)
                schema = shape.schema
            schema = _with_default(schema, parameter.default)
        shapes[parameter.name] = shape
        properties[parameter.name] = schema
    whole: Schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False if additional is None else additional.schema or True,
    }
    if maker.defs:
        whole["$defs"] = maker.defs
    return _Parameters(whole, shapes, additional, context_name)


def _check_params_named(parameters: _Parameters, name: str, **named: str | None) -> None:
    for role, param in named.items():
        if param is not None and param not in parameters.shapes:
            raise _refused(f"Job type {name} has no param {param} that could name the {role} of a job.", field=role)


def _context_parameter(signature: inspect.Signature, raw: Mapping[str, Any]) -> str | None:
    """The parameter annotated Context or SyncContext, or else a first one named ctx.

    The annotation may be text that cannot be evaluated: handlers often import Context for type checkers only.
    """
    for name in signature.parameters:
        annotation = raw.get(name)
        if annotation in (Context, SyncContext) or (
            isinstance(annotation, str) and annotation.strip("'\" ").rpartition(".")[2] in ("Context", "SyncContext")
        ):
            return name
    first = next(iter(signature.parameters), None)
    return first if first == "ctx" else None


def _hints(called: Any, name: str, context_name: str | None) -> dict[str, Any]:
    bare = inspect.unwrap(called)
    annotations = getattr(bare, "__annotations__", {})
    param_hints = {key: value for key, value in annotations.items() if key not in (context_name, "return")}
    if not any(isinstance(value, str) for value in param_hints.values()):
        return param_hints
    # Only what is passed as params has to be understood, not the Context nor what is returned.
    return resolved_hints(SimpleNamespace(__annotations__=param_hints), name, getattr(bare, "__globals__", {}))


def _with_default(schema: Schema, default: Any) -> Schema:
    try:
        return {**schema, "default": as_json(default)}
    except Invalid:
        return schema
