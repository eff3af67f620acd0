"""What pages say about jobs that wait, and about cron."""

from __future__ import annotations

import pytest

from holdbeat.domain.waits import WaitKind
from holdbeat.observe.wording import REASONS
from holdbeat.store.reads.blockers import Blocker
from holdbeat.web.queue import WAITS
from holdbeat.web.schedules import in_words


@pytest.mark.rule("API-06")
@pytest.mark.parametrize("blocker", Blocker)
def test_the_queue_page_has_words_for_everything_that_blocks_a_job(blocker: Blocker) -> None:
    assert REASONS[blocker]


@pytest.mark.rule("API-06", "WAIT-08")
@pytest.mark.parametrize("kind", WaitKind)
def test_the_queue_page_has_words_for_everything_that_a_handler_waits_for(kind: WaitKind) -> None:
    assert WAITS[kind]


@pytest.mark.parametrize(("cron", "words"), [("*/1 * * * *", "every minute"), ("*/5 * * * *", "every 5 minutes")])
def test_one_minute_is_not_said_in_the_plural(cron: str, words: str) -> None:
    assert in_words(cron) == words
