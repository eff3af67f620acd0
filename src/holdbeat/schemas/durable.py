"""What a chain of jobs keeps and waits for: steps, signals, and the graph around a job."""

from typing import Annotated, Any, Literal, TypedDict

from holdbeat.schemas.base import Id, Instant, JsonObject, Keywords, Name, request


@request(payload={"by": "ann"})
class SignalRequest(TypedDict, total=False):
    payload: Annotated[Any, Keywords(description="JSON of up to 256 KB; null if it is left out.")]


class Signal(TypedDict):
    job_id: Annotated[Id, Keywords(description="the first job of the chain")]
    name: str
    number: Annotated[int, Keywords(description="how many signals of this name the chain has by now")]
    sent_at: Instant


class OpenStep(TypedDict):
    name: str
    started_at: Instant


class Step(TypedDict):
    name: str
    value: Any
    is_cut: Annotated[bool, Keywords(description="whether the value is too long to be shown whole")]
    started_at: Instant
    duration_s: Annotated[float | None, Keywords(description="null: it has not ended")]
    size: int | None
    run_id: Id


class Question(TypedDict):
    id: Id
    job_id: Annotated[Id, Keywords(description="the first job of the chain that waits for the answer")]
    title: str
    question: str
    choices: Annotated[list[Any] | None, Keywords(description="the answers that are offered; null: any")]
    schema: Annotated[JsonObject | None, Keywords(description="JSON Schema that the answer must fit")]
    asked_at: Instant
    answer: Any
    answered_by: str | None
    answered_at: Instant | None


@request(answer="yes")
class AnswerRequest(TypedDict):
    answer: Annotated[Any, Keywords(description="JSON of up to 256 KB.")]


@request(from_step="embed")
class RerunRequest(TypedDict, total=False):
    """The step to begin at; left out, the chain is run again from its start."""

    from_step: Name | None


@request(steps="fresh")
class RetryRequest(TypedDict, total=False):
    """What becomes of the steps that the chain has kept: all stay, all go, or one goes with those kept after it."""

    steps: Literal["keep", "fresh"] | None
    from_step: Name | None


_UpstreamFields = TypedDict(
    # `as` is a word of Python, so this one cannot be written as a class.
    "_UpstreamFields",
    {
        "job_id": Id | None,
        "group_id": Id | None,
        "ref": Annotated[Name | None, Keywords(description="that of an earlier job of the same batch")],
        "as": Annotated[Name | None, Keywords(description="the name under which its result is read")],
    },
    total=False,
)


@request(job_id="01890a5d-ac96-774b-bcce-b302099a8057", **{"as": "pages"})
class UpstreamRequest(_UpstreamFields, total=False):
    """What a job waits for: one of `job_id`, `group_id` and `ref`."""


OnUpstream = Literal["cancel", "skip", "run"]


Upstream = TypedDict(
    "Upstream",
    {
        "job_id": Annotated[Id | None, Keywords(description="the first job of the chain that must end")],
        "group_id": Id | None,
        "as": str | None,
        "met_at": Annotated[Instant | None, Keywords(description="when it ended; null until then")],
        "outcome": Annotated[str | None, Keywords(description="the status with which it ended")],
    },
)


class GraphNode(TypedDict):
    id: Annotated[Id, Keywords(description="the first job of a chain, or a group")]
    kind: Literal["job", "group"]
    title: str
    type: str | None
    status: Annotated[str, Keywords(description="of the last job of the chain; GONE if it was deleted")]
    last_job_id: Id | None
    is_centre: Annotated[bool, Keywords(description="whether it is the chain that was asked about")]


GraphEdge = TypedDict(
    "GraphEdge", {"from": Id, "to": Id, "as": str | None, "met_at": Instant | None, "outcome": str | None}
)


class JobGraph(TypedDict):
    nodes: list[GraphNode]
    edges: Annotated[list[GraphEdge], Keywords(description="`to` waits for the end of `from`")]
    is_cut: Annotated[bool, Keywords(description="whether there is more than the nearest 500 nodes")]
