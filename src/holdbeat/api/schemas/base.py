"""What all shapes share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Request(BaseModel):
    """Something that a client sends: a field that is not named here is refused."""

    model_config = ConfigDict(extra="forbid")


def no_default(schema: dict[str, Any]) -> None:
    """For a field that may be left out, while what holds then is decided elsewhere: the document names no default."""
    schema.pop("default", None)


def with_example(**fields: Any) -> ConfigDict:
    """The configuration of a request that is shown with an example."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


def without_defaults(**fields: Any) -> ConfigDict:
    """The same for one of which nothing has a default, as a change, whose missing fields stay as they are.

    The models give such fields a value all the same, for that is how a field is made optional; a client that took it
    from the document for what the server does would overwrite what it did not mean to touch.
    """

    def extend(schema: dict[str, Any]) -> None:
        for each in schema.get("properties", {}).values():
            no_default(each)
        if fields:
            schema["examples"] = [fields]

    return ConfigDict(json_schema_extra=extend)


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
CancelGraceS = Annotated[float, Field(ge=0, le=31_536_000)]


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

    model_config = without_defaults()
    max_attempts: int = 3
    base_delay_s: float = 10
    max_delay_s: float = 3600
    jitter: float = 0


class RetryPolicyRequest(Request):
    """How often and how late a failed job is tried again.

    What is left out comes from the template or the job type; where these say nothing it is 3, 10 s, 3600 s and 0.
    """

    model_config = without_defaults(max_attempts=5, base_delay_s=30)
    max_attempts: Annotated[int, Field(ge=0, le=1000)] = 3
    base_delay_s: Annotated[float, Field(ge=0, le=31_536_000)] = 10
    max_delay_s: Annotated[float, Field(ge=0, le=31_536_000)] = 3600
    jitter: Annotated[float, Field(ge=0, le=1)] = 0


class CancelRequest(Request):
    model_config = with_example(reason="the wrong prompt")
    reason: Reason | None = None
