"""Refusals of a server as errors: one class, with the server's own sentence and code (API-01)."""

from __future__ import annotations

import json
from typing import Any

from holdbeat.domain.errors import HoldbeatError


class ProblemError(HoldbeatError):
    """The server refused a request. `status` is the HTTP status, `code` is stable, `detail` says what to do."""

    default_code = "problem"

    def __init__(
        self, detail: str, *, status: int = 500, code: str | None = None, field: str | None = None, **ids: Any
    ) -> None:
        super().__init__(detail, code=code, field=field, **ids)
        self.status = status

    def __reduce__(self) -> Any:
        return _rebuild, (self.detail, self.status, self.code, self.field, self.ids)

    @staticmethod
    def read(status: int, content: bytes) -> ProblemError:
        """The error that an answer describes; an answer that is no problem+json comes from something in between."""
        try:
            problem = json.loads(content)
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or not isinstance(problem.get("detail"), str):
            return ProblemError(
                f"The server answered {status} without saying why; is this address a Holdbeat server?", status=status
            )
        known = ("type", "title", "status", "detail", "code", "field")
        more = {name: value for name, value in problem.items() if name not in known and name.isidentifier()}
        return ProblemError(
            problem["detail"], status=status, code=problem.get("code"), field=problem.get("field"), **more
        )


def _rebuild(detail: str, status: int, code: str, field: str | None, ids: dict[str, Any]) -> ProblemError:
    return ProblemError(detail, status=status, code=code, field=field, **ids)
