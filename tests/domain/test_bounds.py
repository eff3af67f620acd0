"""Names are one visible line: what breaks the line or turns the text around it is refused."""

from __future__ import annotations

import pytest

from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Invalid


@pytest.mark.rule("SEC-06", "API-01")
@pytest.mark.parametrize("sign", ["\n", "\x1b", "\u2028", "\u2029", "\u202e", "\u202a", "\u2066", "\u2069"])
def test_a_name_that_breaks_its_line_or_turns_the_text_around_is_refused(sign: str) -> None:
    with pytest.raises(Invalid, match=r"name must not contain .* on one line\.") as refused:
        check_line(f"shop{sign}evil", "name")
    assert refused.value.code == "invalid_text"


@pytest.mark.parametrize("name", ["ö ü", "متجر", "מסעדה\u200f!", "👩\u200d💻", "a\u00adb"])
def test_names_in_any_script_stay_as_they_are(name: str) -> None:
    assert check_line(name, "name") == name
