"""What a Job may name in `after`."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.dependencies import MOST_UPSTREAMS, Upstream, check_after, check_on_upstream, check_refs
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import NewJob


@pytest.mark.rule("DEP-04")
def test_a_text_stands_for_the_id_of_a_job_and_a_name_for_its_result() -> None:
    after = check_after(["job-1", {"group_id": "group-1", "as": "pages"}, {"ref": "draft", "as": None}])
    assert after == (Upstream(job_id="job-1"), Upstream(group_id="group-1", name="pages"), Upstream(ref="draft"))


@pytest.mark.rule("DEP-04")
@pytest.mark.parametrize(
    ("after", "field"),
    [
        ("job-1", "after"),
        ([1], "after[0]"),
        ([{}], "after[0]"),
        ([{"job_id": "a", "group_id": "b"}], "after[0]"),
        ([{"job_id": "a", "name": "b"}], "after[0].name"),
        ([{"job_id": ""}], "after[0].job_id"),
        ([{"job_id": "a", "as": "x"}, {"job_id": "b", "as": "x"}], "after"),
        (["a"] * (MOST_UPSTREAMS + 1), "after"),
    ],
)
def test_what_names_nothing_or_too_much_is_refused_where_it_stands(after: Any, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_after(after)
    assert refusal.value.field == field


@pytest.mark.rule("DEP-04")
@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ([("a", "a")], "unknown_ref"),
        ([("a", "b"), ("b", "a")], "unknown_ref"),
        ([(None, "b"), ("b", None)], "unknown_ref"),
        ([("a", None), ("a", None)], "duplicate_ref"),
    ],
)
def test_a_ref_names_an_earlier_job_of_the_batch_so_that_there_is_no_cycle(
    batch: list[tuple[str | None, str | None]], code: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        check_refs([job(ref, upstream) for ref, upstream in batch])
    assert refusal.value.code == code
    check_refs([job("a", None), job("b", "a"), job(None, "b"), job(None, "a")])


@pytest.mark.rule("DEP-04")
def test_what_follows_a_bad_end_is_one_of_three() -> None:
    assert [check_on_upstream(name).value for name in ("cancel", "skip", "run")] == ["cancel", "skip", "run"]
    with pytest.raises(Invalid):
        check_on_upstream("ignore")


def job(ref: str | None, upstream: str | None) -> NewJob:
    return NewJob("story", ref=ref, after=() if upstream is None else (Upstream(ref=upstream),))
