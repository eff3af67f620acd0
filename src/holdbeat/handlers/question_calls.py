"""How handlers ask people: the run ends, and goes on when somebody has answered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.domain.waits import Wait, WaitKind, check_question
from holdbeat.handlers.step_calls import StepState

QUESTION = "$ask:"


class QuestionState(StepState):
    """What both kinds of calls share."""

    def _question(self, question: str, choices: Sequence[Any] | None, schema: dict[str, Any] | None) -> dict[str, Any]:
        if self._keeper is None:
            raise Invalid("A direct request cannot wait for a person. Submit it as a job.", code="direct_cannot_wait")
        check_question(question, choices, schema)
        offered = None if choices is None else list(choices)
        # By what is asked, not by its turn: questions that are asked in parallel keep their answers.
        digest = hashlib.blake2b(dumps([question, offered, schema]).encode(), digest_size=8).hexdigest()
        key = self._steps.number(f"{QUESTION}{digest}")
        return {"do": "question", "key": key, "question": question, "choices": offered, "schema": schema}

    def _wait(self, request: dict[str, Any], standing: dict[str, Any]) -> None:
        self._steps.add_wait(Wait(WaitKind.QUESTION, request["key"], name=standing["id"]))


class QuestionCalls(QuestionState):
    """Questions of async handlers."""

    async def ask(
        self, question: str, choices: Sequence[Any] | None = None, schema: dict[str, Any] | None = None
    ) -> Any:
        """Asks people, and returns the answer; no slot is held meanwhile.

        The dashboard, `holdbeat questions` and `GET /api/questions` list the question. The answer is one of `choices`,
        or fits the JSON Schema `schema`; without either it is any JSON.
        """
        self.checkpoint()
        request = self._question(question, choices, schema)
        assert self._keeper is not None
        standing = await self._keeper.ask_async(request)
        if standing["is_answered"]:
            return standing["answer"]
        self._wait(request, standing)
        await self._steps.others_ended()
        raise self._steps.suspended()


class PlainQuestionCalls(QuestionState):
    """Questions of handlers in threads and processes."""

    def ask(self, question: str, choices: Sequence[Any] | None = None, schema: dict[str, Any] | None = None) -> Any:
        """As `Context.ask`, without await."""
        self.checkpoint()
        request = self._question(question, choices, schema)
        assert self._keeper is not None
        standing = self._keeper.ask(request)
        if standing["is_answered"]:
            return standing["answer"]
        self._wait(request, standing)
        raise self._steps.suspended()
