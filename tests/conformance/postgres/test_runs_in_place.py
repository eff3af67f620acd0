"""The end of a run is written in the page of its start, without a new entry in any index."""

from __future__ import annotations

from contextlib import closing

from holdbeat.domain.job import NewJob
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import claim_some, complete, enqueue_all, open_at, rows


def test_no_index_of_runs_has_a_column_that_changes_when_a_run_completes(postgres_url: str) -> None:
    """PostgreSQL writes a new entry in every index if a column of any index changed, conditions of indexes included."""
    with closing(open_at(postgres_url)) as store:
        columns = rows(
            store,
            "SELECT DISTINCT attribute.attname FROM pg_index AS i "
            "JOIN pg_depend AS d ON d.objid = i.indexrelid AND d.refobjid = i.indrelid AND d.refobjsubid > 0 "
            "JOIN pg_attribute AS attribute ON attribute.attrelid = i.indrelid AND attribute.attnum = d.refobjsubid "
            "WHERE i.indrelid = 'job_runs'::regclass",
        )
        # The two keys depend on their constraints and not on columns; id and job_id never change.
        assert {name for (name,) in columns} <= {"id", "job_id", "not_completed"}


def test_runs_that_complete_stay_in_their_page(postgres_url: str) -> None:
    with closing(open_at(postgres_url)) as store:
        enqueue_all(store, [NewJob("noop") for _ in range(300)])
        claims = claim_some(store, 300)
        started = pages(store)
        for claim in claims:
            complete(store, claim)
        ended = pages(store)
        assert sum(ended[run_id] == page for run_id, page in started.items()) >= 290


def pages(store: PersistenceAdapter) -> dict[str, str]:
    return dict(rows(store, "SELECT id, split_part(trim('()' FROM ctid::text), ',', 1) FROM job_runs"))
