"""The legacy API under `/jobs`."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from holdbeat.schemas.base import Id, Instant, JsonObject, Keywords, open_object, request


@open_object
@request(prompt="a fox")
class CompatibilityTrigger(TypedDict):
    """The params of the job."""


@request(type="story", params={"prompt": "a fox"})
class CompatibilityBatchJob(TypedDict):
    type: str
    params: NotRequired[JsonObject | None]


@request(jobs=[{"type": "story", "params": {"prompt": "a fox"}}, {"type": "story"}])
class CompatibilityBatch(TypedDict):
    jobs: Annotated[list[CompatibilityBatchJob], Keywords(minItems=1)]


class CompatibilityAccepted(TypedDict):
    job_id: Id
    status: str


class CompatibilityBatchAccepted(TypedDict):
    batch_id: Id


class CompatibilityJob(TypedDict):
    job_id: Id
    type: str
    params: JsonObject
    status: Literal["queued", "running", "succeeded", "failed", "cancelled", "skipped"]
    result: Any
    error: str | None
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


class CompatibilityJobList(TypedDict):
    jobs: list[CompatibilityJob]


class CompatibilityBatchStatus(TypedDict):
    batch_id: Id
    status: Literal["queued", "running", "succeeded", "partial", "failed"]
    jobs: list[CompatibilityJob]
