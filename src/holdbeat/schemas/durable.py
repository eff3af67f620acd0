"""What a chain of jobs keeps: steps and signals."""

from typing import Annotated, Any, Literal, TypedDict

from holdbeat.schemas.base import Id, Instant, JsonObject, Keywords, Name, request


@request(payload={"by": "ann"})
class SignalRequest(TypedDict, total=False):
    payload: Annotated[Any, Keywords({"description": "JSON of up to 256 KB; null if it is left out."})]


class Signal(TypedDict):
    job_id: Annotated[Id, Keywords({"description": "the first job of the chain"})]
    name: str
    number: Annotated[int, Keywords({"description": "how many signals of this name the chain has by now"})]
    sent_at: Instant


class OpenStep(TypedDict):
    name: str
    started_at: Instant


class Step(TypedDict):
    name: str
    value: Any
    is_cut: Annotated[bool, Keywords({"description": "whether the value is too long to be shown whole"})]
    started_at: Instant
    duration_s: Annotated[float | None, Keywords({"description": "null: it has not ended"})]
    size: int | None
    run_id: Id


class Question(TypedDict):
    id: Id
    job_id: Annotated[Id, Keywords({"description": "the first job of the chain that waits for the answer"})]
    title: str
    question: str
    choices: Annotated[list[Any] | None, Keywords({"description": "the answers that are offered; null: any"})]
    schema: Annotated[JsonObject | None, Keywords({"description": "JSON Schema that the answer must fit"})]
    asked_at: Instant
    answer: Any
    answered_by: str | None
    answered_at: Instant | None


@request(answer="yes")
class AnswerRequest(TypedDict):
    answer: Annotated[Any, Keywords({"description": "JSON of up to 256 KB."})]


@request(from_step="embed")
class RerunRequest(TypedDict, total=False):
    """The step to begin at; left out, the chain is run again from its start."""

    from_step: Name | None


@request(steps="fresh")
class RetryRequest(TypedDict, total=False):
    """What becomes of the steps that the chain has kept: all stay, all go, or one goes with those kept after it."""

    steps: Literal["keep", "fresh"] | None
    from_step: Name | None
