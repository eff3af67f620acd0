"""What all shapes share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Request(BaseModel):
    """Something that a client sends: a field that is not named here is refused."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """Something that a client gets."""

    model_config = ConfigDict(extra="forbid")


Id = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Instant = Annotated[datetime, Field(examples=["2026-01-31T09:30:00.000Z"])]
Priority = Annotated[int, Field(ge=0, le=100)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$")]
Label = Annotated[str, Field(max_length=500)]
Labels = dict[str, str]
Params = dict[str, Any]
Reason = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$")]
Url = Annotated[str, Field(min_length=1, max_length=2048, examples=["https://example.org/hook"])]
TimeoutS = Annotated[float, Field(ge=0.001, le=31_536_000)]


class Problem(BaseModel):
    """A refusal: `code` for programs, `detail` for people."""

    type: str = Field(examples=["urn:holdbeat:problem:unknown_type"])
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["There is no job type 'stroy'. Did you mean story?"])
    code: str = Field(examples=["unknown_type"])
    field: str | None = Field(default=None, examples=["type"])


class RetryPolicy(Answer):
    max_attempts: int
    base_delay_s: float
    max_delay_s: float
    jitter: float


class RetryPolicyPart(Answer):
    """The members that are set here; the others come from the layer below: template, job type, defaults."""

    max_attempts: int = 3
    base_delay_s: float = 10
    max_delay_s: float = 3600
    jitter: float = 0


class RetryPolicyRequest(Request):
    """How often and how late a failed job is tried again; what is left out keeps its default."""

    max_attempts: Annotated[int, Field(ge=0, le=1000)] = 3
    base_delay_s: Annotated[float, Field(ge=0, le=31_536_000)] = 10
    max_delay_s: Annotated[float, Field(ge=0, le=31_536_000)] = 3600
    jitter: Annotated[float, Field(ge=0, le=1)] = 0


class CancelRequest(Request):
    reason: Reason | None = None
