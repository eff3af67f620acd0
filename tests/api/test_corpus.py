"""Requests of the fuzz corpus meet no fault; `make fuzz` sends many more."""

from __future__ import annotations

import pytest

from tests.api.conftest import Serve
from tests.fuzz.fuzz import Corpus

REQUESTS = 400


@pytest.mark.rule("API-01", "SEC-06")
def test_no_request_of_the_corpus_meets_a_fault_and_what_was_taken_can_be_listed(serve: Serve) -> None:
    corpus = Corpus(serve(direct_wait_s=1).url, seed=7)
    for _ in range(REQUESTS):
        corpus.send()
    corpus.read_lists()
    corpus.close()
    assert corpus.faults == []
    assert corpus.answers[200] > 20 and corpus.answers[422] > 20
