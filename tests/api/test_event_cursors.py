"""A reader of events who comes back later than retention goes on with what is left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Serve
from tests.api.serving import Served
from tests.waiting import eventually


def page(served: Served, after: str) -> list[dict[str, Any]]:
    answer = served.client.get(f"/api/events?after={after}&limit=500", headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.mark.rule("API-04", "QUE-07")
def test_the_id_of_an_event_that_was_pruned_is_a_place_like_any_other(serve: Serve) -> None:
    served = serve()
    for _ in range(3):
        served.run_job("echo")
    whole = eventually(lambda: (result := page(served, "0"))[-1]["name"] == "run.ended" and result)
    ids = [event["id"] for event in whole]
    first, middle = len(ids) // 3, 2 * len(ids) // 3

    def prune(tx: Any) -> None:
        tx.execute("DELETE FROM events WHERE id <= :first OR id = :middle", first=ids[first], middle=ids[middle])

    served.store.write_sync(prune)
    kept = [id_ for id_ in ids[first + 1 :] if id_ != ids[middle]]
    assert [event["id"] for event in page(served, str(ids[0]))][: len(kept)] == kept
    assert [event["id"] for event in page(served, str(ids[first]))][: len(kept)] == kept
    rest = [item for item in kept if item > ids[middle]]
    assert [event["id"] for event in page(served, str(ids[middle]))][: len(rest)] == rest
    with served.client.stream("GET", f"/api/events?after={ids[first]}") as stream:
        assert stream.status_code == 200
        data = next(line for line in stream.iter_lines() if line.startswith("data: "))
        assert f'"id":{kept[0]},' in data
