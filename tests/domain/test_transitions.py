"""The wheel of states turns forward only, and its picture is the table itself."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import TRANSITIONS, JobEvent, JobStatus, transition
from tools.draw_states import drawn

ALLOWED = {
    ("QUEUED", "claim"): "RUNNING",
    ("QUEUED", "skip"): "SKIPPED",
    ("QUEUED", "cancel"): "CANCELLED",
    ("RUNNING", "complete"): "COMPLETED",
    ("RUNNING", "fail"): "FAILED",
    ("RUNNING", "skip"): "SKIPPED",
    ("RUNNING", "cancel"): "CANCELLED",
    ("RUNNING", "continue"): "CONTINUED",
}


@pytest.mark.rule("DEC-006")
@pytest.mark.parametrize(("status", "event"), list(product(JobStatus, JobEvent)))
def test_every_event_in_every_state_is_a_known_step_or_a_refusal(status: JobStatus, event: JobEvent) -> None:
    expected = ALLOWED.get((status.value, event.value))
    if expected is None:
        with pytest.raises(Conflict, match=f"{status} cannot {event}") as refusal:
            transition(status, event)
        assert refusal.value.code == "wrong_state"
    else:
        assert transition(status, event) == expected


@pytest.mark.rule("DEC-006")
def test_no_transition_leads_back_to_queued_or_out_of_a_terminal_state() -> None:
    assert JobStatus.QUEUED not in TRANSITIONS.values()
    assert not any(status.is_terminal for status, _ in TRANSITIONS)


@pytest.mark.rule("DEC-006")
def test_every_state_can_be_reached_from_queued() -> None:
    reached = {JobStatus.QUEUED}
    for _ in JobStatus:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(JobStatus)


@pytest.mark.rule("DEC-006")
def test_the_diagram_in_the_docs_is_drawn_from_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "states.md"
    assert page.read_text(encoding="utf-8") == drawn(), "run `python -m tools.draw_states`"
