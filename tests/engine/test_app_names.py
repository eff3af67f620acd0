"""A job type is named by a keyword; a name in the function's place is a slip that is said plainly."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.errors import Invalid


@pytest.mark.rule("QUE-06")
def test_a_name_in_the_place_of_the_function_is_refused_with_what_to_write() -> None:
    app = App()
    decorate: Any = app.job
    with pytest.raises(Invalid, match=r"write @app\.job\(name='echo'\)") as refused:
        decorate("echo")
    assert refused.value.code == "bad_job_type"
