"""Job types from functions: the signature is the schema, and what the schema accepts can be called."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict
from uuid import UUID

import pydantic
import pytest

from holdbeat.domain.bounds import duration_s
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import RetryPolicy
from holdbeat.domain.params import check_json
from holdbeat.handlers.context import Context
from holdbeat.handlers.job_type import JobType, Target
from holdbeat.handlers.outcome import as_json

if TYPE_CHECKING:
    from holdbeat import handlers

pytestmark = pytest.mark.rule("QUE-06")


class Tone(Enum):
    DRY = "dry"
    WARM = "warm"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Opaque(Enum):
    THIS = (1, 2)
    THAT = (3, 4)


@dataclass
class Chapter:
    title: str
    due: datetime | None = None
    parts: list[Chapter] = field(default_factory=list)


@dataclass
class Fussy:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n is negative")


class Source(TypedDict):
    url: str
    depth: NotRequired[int]


class Inner(pydantic.BaseModel):
    at: datetime


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    inner: list[Inner] = []


UserId = NewType("UserId", int)


def everything(  # type: ignore[no-untyped-def]
    ctx: Context,
    text: str,
    number: int,
    ratio: float,
    flag: bool,
    tags: list[str],
    scores: dict[str, float],
    maybe: Optional[int],  # noqa: UP045
    either: int | str,
    mode: Literal["fast", "slow", 3],
    tone: Tone,
    level: Level,
    opaque: Opaque,
    at: datetime,
    on: date,
    key: UUID,
    pause: timedelta,
    price: Decimal,
    path: Path,
    chapter: Chapter,
    source: Source,
    model: Model,
    pair: tuple[int, datetime],
    days: set[date],
    many: Sequence[Chapter],
    table: Mapping[str, list[Tone]],
    user: UserId,
    anything: Any,
    bare,
    noted: Annotated[int, "doc"] = 7,
    untold: str = None,  # type: ignore[assignment]  # noqa: RUF013
) -> None:
    """Does everything.

    At once.
    """


PARAMS: dict[str, Any] = {
    "text": "t",
    "number": 3.0,
    "ratio": 1,
    "flag": False,
    "tags": ["a"],
    "scores": {"a": 1},
    "maybe": None,
    "either": "x",
    "mode": 3,
    "tone": "dry",
    "level": 2,
    "opaque": "THAT",
    "at": "2026-01-01T02:00:00+02:00",
    "on": "2026-01-31",
    "key": "123e4567-e89b-12d3-a456-426614174000",
    "pause": "1h30m",
    "price": "0.10",
    "path": "/tmp/x",
    "chapter": {"title": "One", "due": "2026-01-01T00:00:00", "parts": [{"title": "Two"}]},
    "source": {"url": "https://example.org"},
    "model": {"name": "ab", "inner": [{"at": "2026-01-01T00:00:00Z"}]},
    "pair": [1, "2026-01-01T00:00:00Z"],
    "days": ["2026-01-31"],
    "many": [{"title": "Three"}],
    "table": {"x": ["warm"]},
    "user": 9,
    "anything": [None],
    "bare": {"a": 1},
    "untold": None,
}
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def test_every_annotation_arrives_as_what_it_says() -> None:
    job_type = JobType.from_function(everything)
    job_type.check(PARAMS)
    bound = job_type.bind(PARAMS)
    assert bound == {
        **PARAMS,
        "tone": Tone.DRY,
        "level": Level.HIGH,
        "opaque": Opaque.THAT,
        "at": NEW_YEAR,
        "on": date(2026, 1, 31),
        "key": UUID("123e4567-e89b-12d3-a456-426614174000"),
        "pause": timedelta(minutes=90),
        "price": Decimal("0.10"),
        "path": Path("/tmp/x"),
        "chapter": Chapter("One", NEW_YEAR, [Chapter("Two")]),
        "model": Model(name="ab", inner=[Inner(at=NEW_YEAR)]),
        "pair": (1, NEW_YEAR),
        "days": {date(2026, 1, 31)},
        "many": [Chapter("Three")],
        "table": {"x": [Tone.WARM]},
    }
    assert isinstance(bound["number"], int) and isinstance(bound["ratio"], float)
    assert (job_type.name, job_type.context_name, job_type.description) == ("everything", "ctx", "Does everything.")
    assert "noted" not in job_type.schema["required"] and "untold" not in job_type.schema["required"]
    assert job_type.schema["properties"]["noted"]["default"] == 7
    check_json(job_type.schema, field="schema")


WRONG: list[tuple[str, Any, str]] = [
    ("text", 1, "params.text"),
    ("flag", 0, "params.flag"),
    ("maybe", "x", "params.maybe"),
    ("either", 1.5, "params.either"),
    ("mode", "medium", "params.mode"),
    ("tone", "DRY", "params.tone"),
    ("at", "soon", "params.at"),
    ("pause", "soon", "params.pause"),
    ("price", "cheap", "params.price"),
    ("chapter", {"title": "One", "parts": [{"titel": "Two"}]}, "params.chapter.parts[0].title"),
    ("source", {}, "params.source.url"),
    ("model", {"name": "a"}, "params.model.name"),
    ("pair", [1], "params.pair"),
    ("days", ["2026-01-31", "2026-01-31"], "params.days"),
    ("table", {"x": ["cold"]}, "params.table.x[0]"),
    ("surplus", 1, "params.surplus"),
]


@pytest.mark.parametrize(("name", "value", "place"), WRONG)
def test_what_does_not_fit_the_signature_is_refused_at_its_place(name: str, value: Any, place: str) -> None:
    with pytest.raises(Invalid) as refusal:
        JobType.from_function(everything).bind({**PARAMS, name: value})
    assert refusal.value.field == place


def test_the_checks_of_a_dataclass_or_model_itself_are_refusals_too() -> None:
    def fussy(x: Fussy) -> None: ...

    with pytest.raises(Invalid) as refusal:
        JobType.from_function(fussy).bind({"x": {"n": -1}})
    assert refusal.value.field == "params.x"
    assert "n is negative" in refusal.value.detail


def test_a_number_in_a_union_stays_what_json_said() -> None:
    def union(x: int | float | datetime) -> None: ...

    bind = JobType.from_function(union).bind
    assert type(bind({"x": 1})["x"]) is int
    assert type(bind({"x": 1.0})["x"]) is float
    assert bind({"x": "2026-01-01T00:00:00Z"}) == {"x": NEW_YEAR}


def test_keyword_arguments_take_what_is_not_named() -> None:
    def open_ended(a: int, **others: datetime) -> None: ...

    job_type = JobType.from_function(open_ended)
    assert job_type.bind({"a": 1, "b": "2026-01-01T00:00:00Z"}) == {"a": 1, "b": NEW_YEAR}
    with pytest.raises(Invalid):
        job_type.bind({"a": 1, "b": 2})


def test_the_context_is_found_by_annotation_or_by_name() -> None:
    def by_annotation(a: int, run: Context) -> None: ...

    def by_string(run: handlers.context.Context) -> None: ...

    def by_name(ctx) -> None: ...  # type: ignore[no-untyped-def]

    def without(a: int) -> None: ...

    context_names = [JobType.from_function(item).context_name for item in (by_annotation, by_string, by_name, without)]
    assert context_names == ["run", "run", "ctx", None]


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


class _Unknown:
    pass


def _refused_signatures() -> list[Callable[..., Any]]:
    def positional(*values: int) -> None: ...

    def positional_only(a: int, /) -> None: ...

    def raw(data: bytes) -> None: ...

    def unknown(x: _Unknown) -> None: ...

    def int_keys(x: dict[int, str]) -> None: ...

    def unresolved(x: NoSuchName) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def function(x: Callable[[], None]) -> None: ...

    return [positional, positional_only, raw, unknown, int_keys, unresolved, function, _generator, _async_generator]


@pytest.mark.parametrize("function", _refused_signatures())
def test_signatures_that_json_cannot_fill_are_refused_at_registration(function: Callable[..., Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        JobType.from_function(function)
    assert refusal.value.code == "bad_job_type"


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": "-x"},
        {"name": "x" * 121},
        {"aliases": ["ok", "a b"]},
        {"isolation": "container"},
        {"timeout": "soon"},
        {"timeout": 0},
        {"timeout": -1},
        {"retries": -1},
        {"priority": 101},
        {"labels": {"a": 1}},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        JobType.from_function(_plain, **options)


def _plain() -> None: ...


def test_options_become_the_policy_of_the_type() -> None:
    job_type = JobType.from_function(
        _plain,
        "story",
        aliases=["tale"],
        resource="ollama",
        timeout="10m",
        retries=1,
        isolation="process",
        priority=5,
        cancel_grace=None,
        labels={"team": "night"},
        webhook_url="https://example.org/hook",
    )
    assert job_type.names == ("story", "tale")
    assert (job_type.timeout_s, job_type.retry_policy) == (600.0, RetryPolicy(max_attempts=1))
    assert (job_type.isolation, job_type.cancel_grace_s) == ("process", None)
    assert job_type.target == Target(__name__, "_plain")
    plain = JobType.from_function(_plain)
    assert (plain.name, plain.timeout_s, plain.retry_policy, plain.cancel_grace_s) == ("_plain", None, None, 10)
    with pytest.raises(Invalid, match="need a name"):
        JobType.from_function(lambda: None)


def test_partial_functions_callable_objects_and_wrapped_functions_are_understood() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    class Adder:
        async def __call__(self, a: int) -> int:
            return a

    @functools.wraps(add)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return add(*args, **kwargs)

    partial = JobType.from_function(functools.partial(add, b=2))
    assert partial.is_async and partial.schema["required"] == ["a"]
    adder = JobType.from_function(Adder(), "adder")
    assert adder.is_async and list(adder.schema["properties"]) == ["a"]
    wrapped = JobType.from_function(wrapper)
    assert wrapped.bind({"a": 1, "b": 2}) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        (0, 0),
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2d", 172_800),
        ("1w", 604_800),
        (timedelta(minutes=1), 60),
    ],
)
def test_durations_are_read_as_people_write_them(written: Any, seconds: float) -> None:
    assert duration_s(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    [
        *("", "soon", "10 minutes", "-5s", "5x", "m", "1h-30m", "9" * 5000, "1" * 100),
        *(-1, float("nan"), float("inf"), True, None, [], timedelta(seconds=-1)),
    ],
)
def test_what_is_no_duration_is_refused(written: Any) -> None:
    with pytest.raises(Invalid) as refusal:
        duration_s(written, field="timeout")
    assert refusal.value.field == "timeout"


@pytest.mark.rule("EXE-02")
def test_results_become_plain_json() -> None:
    result = as_json(
        {
            "chapter": Chapter("One", NEW_YEAR),
            "model": Model(name="ab", inner=[Inner(at=NEW_YEAR)]),
            Tone.DRY: {3, 1, 2},
            "local": datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            "naive": datetime(2026, 1, 1),  # noqa: DTZ001
            "pair": (1, date(2026, 1, 31)),
            "pause": timedelta(seconds=1.5),
            "key": UUID(int=1),
            "level": Level.HIGH,
            "price": Decimal("0.10"),
            7: None,
        }
    )
    assert result == {
        "chapter": {"title": "One", "due": "2026-01-01T00:00:00.000Z", "parts": []},
        "model": {"name": "ab", "inner": [{"at": "2026-01-01T00:00:00Z"}]},
        "dry": [1, 2, 3],
        "local": "2026-01-01T00:00:00.000Z",
        "naive": "2026-01-01T00:00:00",
        "pair": [1, "2026-01-31"],
        "pause": 1.5,
        "key": "00000000-0000-0000-0000-000000000001",
        "level": 2,
        "price": "0.10",
        "7": None,
    }


@pytest.mark.rule("EXE-02")
@pytest.mark.parametrize(
    "value", [b"x", object(), {(1, 2): 3}, float("nan"), 2**64, "\x00", ["x" * 11_000_000], {"a": Path}]
)
def test_results_without_a_plain_form_are_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        as_json(value)


def test_registering_a_job_type_imports_no_server_and_no_pydantic() -> None:
    program = (
        "import sys; from holdbeat.handlers.handler import make_handler; import holdbeat.handlers.shell;"
        "print([m for m in ('pydantic', 'fastapi', 'httpx2', 'click', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
