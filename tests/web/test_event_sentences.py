"""Events as sentences."""

from __future__ import annotations

import pytest

from holdbeat.domain import events
from holdbeat.web.event_sentences import phrase

NAMES = sorted(value for name, value in vars(events).items() if name.isupper() and isinstance(value, str))


@pytest.mark.rule("AUD-01")
@pytest.mark.parametrize("name", NAMES)
def test_every_event_is_said_in_words_instead_of_by_its_name(name: str) -> None:
    words = phrase({"name": name, "data": {"sent_by": "ann", "by": "ann", "signal": "approved"}})
    assert words != name
    assert "." not in words.rstrip(".")
