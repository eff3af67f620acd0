"""What all schemas share: how they are marked, and the types of their fields."""

from collections.abc import Callable
from typing import Annotated, Any, Generic, NotRequired, TypedDict, TypeVar

from holdbeat.schemas import field_bounds

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Keywords(dict[str, Any]):
    """Keywords of JSON Schema for `Annotated`. Hashed by identity, since members of a union must be hashable."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]


JsonObject = dict[str, Any]
NO_DEFAULT: dict[str, Any] = {"default": ...}
"""For a field of a request whose default is decided elsewhere: the document names none."""


def request(**example: Any) -> Callable[[C], C]:
    """Marks what a client sends, with an example. A nullable field that may be left out has the default null."""
    return _marked("request", example)


def change(**example: Any) -> Callable[[C], C]:
    """Marks an edit: a field that is left out stays as it is, so no field has a default."""
    return _marked("change", example)


def open_object(schema: C) -> C:
    """Marks an object that may hold more fields than its schema names."""
    schema.__holdbeat_open__ = True  # type: ignore[attr-defined]
    return schema


def _marked(kind: str, example: dict[str, Any]) -> Callable[[C], C]:
    def mark(schema: C) -> C:
        schema.__holdbeat_kind__ = kind  # type: ignore[attr-defined]
        schema.__holdbeat_example__ = example  # type: ignore[attr-defined]
        return schema

    return mark


_LINE = r"^[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$"
Id = Annotated[str, Keywords(format="uuid")]
Instant = Annotated[str, Keywords(format="date-time", examples=["2026-01-31T09:30:00.000Z"])]
Priority = Annotated[int, Keywords(minimum=0, maximum=field_bounds.PRIORITY_MAX)]
Name = Annotated[str, Keywords(minLength=1, maxLength=field_bounds.LONGEST_NAME, pattern=_LINE)]
Reason = Annotated[str, Keywords(minLength=1, maxLength=field_bounds.LONGEST_REASON, pattern=_LINE)]
Url = Annotated[str, Keywords(minLength=1, maxLength=field_bounds.LONGEST_URL, examples=["https://example.org/hook"])]
Key = Annotated[str, Keywords(minLength=1, maxLength=field_bounds.LONGEST_KEY)]
TimeoutS = Annotated[float, Keywords(minimum=0.001, maximum=field_bounds.YEAR_S)]
DelayS = Annotated[float, Keywords(minimum=0, maximum=field_bounds.YEAR_S)]
Labels = dict[str, str]


class Page(TypedDict, Generic[T]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[T]
    next_cursor: str | None


class Items(TypedDict, Generic[T]):
    items: list[T]


@open_object
class Problem(TypedDict):
    """A refusal: `code` for programs, `detail` for people."""

    type: Annotated[str, Keywords(examples=["urn:holdbeat:problem:unknown_type"])]
    title: Annotated[str, Keywords(examples=["Unprocessable Content"])]
    status: Annotated[int, Keywords(examples=[422])]
    detail: Annotated[str, Keywords(examples=["There is no job type 'stroy'. Did you mean story?"])]
    code: Annotated[str, Keywords(examples=["unknown_type"])]
    field: NotRequired[Annotated[str | None, Keywords(default=None, examples=["type"])]]


class RetryPolicy(TypedDict):
    max_attempts: int
    base_delay_s: float
    max_delay_s: float
    jitter: float


class RetryPolicyPart(TypedDict, total=False):
    """The members that are set here; the others come from the layer below: template, job type, defaults."""

    max_attempts: int
    base_delay_s: float
    max_delay_s: float
    jitter: float


@change(max_attempts=5, base_delay_s=30)
class RetryPolicyRequest(TypedDict, total=False):
    """How many times, and after which delays, a failed job is retried.

    Omitted members come from the template or the job type. Their last defaults are 3, 10 s, 3600 s and 0.
    """

    max_attempts: Annotated[int, Keywords(minimum=0, maximum=field_bounds.ATTEMPTS_MAX)]
    base_delay_s: DelayS
    max_delay_s: DelayS
    jitter: Annotated[float, Keywords(minimum=0, maximum=1)]


@request(reason="the wrong prompt")
class CancelRequest(TypedDict, total=False):
    reason: Reason | None
