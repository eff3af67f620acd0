"""Verbs about jobs on a store of this machine, step by step, with the steps that must fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.run import Outcome
from holdbeat.domain.views import job_json
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.jobs import load_job
from tests.cli.command import Command
from tests.conformance.acts import claim_one, enqueue_one, open_at, settle_as


def show(holdbeat: Command, job_id: str) -> dict[str, object]:
    answer: dict[str, object] = holdbeat("show", job_id, "--json").json
    return answer


@pytest.mark.rule("DEC-006")
def test_what_a_verb_prints_as_json_is_the_one_form_of_a_job(holdbeat: Command) -> None:
    job_id = holdbeat.submit("story", "prompt=hi", "--label", "team=crawl", "--priority", "7")
    store = open_at(holdbeat.store, clock=SystemClock())
    try:
        stored = job_json(store.read_sync(load_job, job_id))
    finally:
        store.close()
    assert show(holdbeat, job_id) == json.loads(json.dumps(stored))
    assert holdbeat("jobs", "--json").json == {"items": [json.loads(json.dumps(stored))], "next_cursor": None}
    assert stored["status"] == "QUEUED" and job_id in holdbeat("jobs").out and "QUEUED" in holdbeat("jobs").out


@pytest.mark.rule("STEP-05", "WAIT-08")
def test_the_first_job_of_a_chain_shows_what_the_chain_waits_for(holdbeat: Command) -> None:
    store = open_at(holdbeat.store, clock=SystemClock())
    try:
        job = enqueue_one(store)
        for name in ("first", "second"):
            wait = Wait(WaitKind.SIGNAL, f"$signal:{name}", name=name, number=1)
            settle_as(store, claim_one(store), Outcome.continued((wait,)))
            tip = store.read_sync(tip_of, job.id)
            line = next(line for line in holdbeat("show", job.id).out.splitlines() if line.startswith("newest"))
            assert line.split(maxsplit=1)[1] == f"{tip} QUEUED, waits for signal {name}"
            assert "newest" not in show(holdbeat, tip)
            store.write_sync(send_signal, job.id, name, None)
    finally:
        store.close()


def test_values_that_are_json_are_typed_and_all_others_are_literal(holdbeat: Command) -> None:
    fields = {"a": 3, "b": True, "c": [1, 2], "d": "3", "e": "$(id)", "f": "--help", "g": "two\nlines", "h": "NaN"}
    words = ["a=3", "b=true", "c=[1,2]", 'd="3"', "e=$(id)", "f=--help", "g=two\nlines", "h=NaN"]
    job_id = holdbeat.submit("http", "url=http://127.0.0.1/", f"body={json.dumps(fields)}")
    assert show(holdbeat, job_id)["params"] == {"url": "http://127.0.0.1/", "body": fields}
    output = holdbeat("submit", "http", *words, "url=http://127.0.0.1/", code=2)
    assert "a" in output.err


def test_params_come_from_a_word_a_file_or_the_input_and_single_ones_go_over_them(
    holdbeat: Command, tmp_path: Path
) -> None:
    (tmp_path / "params.json").write_text('{"prompt": "file", "words": 1}')
    from_file = holdbeat.submit("story", "words=9", "--params", "@params.json")
    from_input = holdbeat("submit", "story", "--params", "-", text='{"prompt": "input"}').out.strip()
    from_word = holdbeat.submit("story", "--params", '{"prompt": "word"}')
    assert show(holdbeat, from_file)["params"] == {"prompt": "file", "words": 9}
    assert show(holdbeat, from_input)["params"] == {"prompt": "input"}
    assert show(holdbeat, from_word)["params"] == {"prompt": "word"}


REFUSED = [
    (["stroy"], "Did you mean story?"),
    ([], "Say what to run"),
    (["story", "loose"], "key=value"),
    (["story", "prompt=a", "prompt=b"], "given twice"),
    (["story", "--params", "{"], "not JSON"),
    (["story", "--params", "[]"], "must be a JSON object"),
    (["story", "--params", "@missing.json"], "cannot be read"),
    (["story", "--delay", "soon"], "90s"),
    (["story", "--priority", "101"], "0<=x<=100"),
    (["story", "--not-before", "tomorrow"], "must be an instant"),
    (["story", "words=many"], "words"),
    (["story", "--label", "team"], "name=value"),
    (["story", "--webhook-url", "nowhere"], "webhook_url"),
    (["story", "--template", "t"], "not both"),
    (["--template", "missing"], "missing"),
]


def test_bad_input_is_one_sentence_that_says_what_to_do(holdbeat: Command) -> None:
    for words, sentence in REFUSED:
        answer = holdbeat("submit", *words, code=2)
        assert sentence in answer.err and not answer.out
    assert holdbeat("jobs", "--json").json["items"] == []


def test_the_same_idempotency_key_finds_the_same_job_and_another_request_is_refused(holdbeat: Command) -> None:
    first = holdbeat.submit("story", "prompt=a", "--idempotency-key", "k")
    assert holdbeat.submit("story", "prompt=a", "--idempotency-key", "k") == first
    assert "k" in holdbeat("submit", "story", "prompt=b", "--idempotency-key", "k", code=1).err


def test_each_kind_of_failure_has_its_exit_code(holdbeat: Command, tmp_path: Path) -> None:
    unknown = "01977e3c-5f2a-7c31-b3a8-0d5c6f0a9e11"
    job_id = holdbeat.submit("story")
    assert unknown in holdbeat("show", unknown, code=4).err
    holdbeat("show", "nonsense", code=4)
    assert "QUEUED" in holdbeat("retry", job_id, code=1).err
    assert "There is no store" in holdbeat("jobs", "--store", "sqlite:///missing.db", code=3).err
    assert not (tmp_path / "missing.db").exists()
    assert "cannot be reached" in holdbeat("jobs", "--server", "http://127.0.0.1:1", code=5).err
    assert "exclude" in holdbeat("jobs", "--server", "http://127.0.0.1:1", "--store", "sqlite:///x.db", code=2).err
    assert "slotz" in holdbeat("jobs", env={"HOLDBEAT_SLOTZ": "1"}, code=2).err
    (tmp_path / "foreign.db").write_bytes(b"this is not a database, it only looks like a file" * 100)
    assert "foreign.db" in holdbeat("jobs", "--store", "sqlite:///foreign.db", code=3).err


def test_a_store_that_is_named_beats_a_server_of_the_environment(holdbeat: Command) -> None:
    out = {"HOLDBEAT_SERVER": "http://127.0.0.1:1"}
    assert holdbeat("jobs", "--store", holdbeat.store, "--json", env=out).json["items"] == []
    holdbeat("jobs", env=out, code=5)


def test_jobs_can_be_changed_moved_and_cancelled_while_they_wait(holdbeat: Command) -> None:
    first, second, third = (holdbeat.submit("story", f"prompt={n}") for n in "abc")
    assert "Say where to" in holdbeat("move", third, code=2).err
    holdbeat("move", third, "--to", "top")
    holdbeat("move", first, "--after", second)
    order = [job["id"] for job in holdbeat("queue", "list", "--json").json["items"]]
    assert order == [third, second, first]
    holdbeat("queue", "reorder", first, second, third)
    assert [job["id"] for job in holdbeat("queue", "list", "--json").json["items"]] == [first, second, third]
    assert "Say what to change" in holdbeat("change", first, code=2).err
    changed = holdbeat("change", first, "--priority", "9", "--not-before", "2999-01-01T00:00:00Z", "--json").json
    assert changed["priority"] == 9 and changed["not_before"] == "2999-01-01T00:00:00.000Z"
    assert "2999" in holdbeat("explain", first).out
    assert holdbeat("cancel", first, "--reason", "never mind").out.strip() == f"{first} CANCELLED"
    assert show(holdbeat, first)["cancel_reason"] == "never mind"
    assert "CANCELLED" in holdbeat("cancel", first, code=1).err
    again = holdbeat("retry", first).out.strip()
    assert show(holdbeat, again)["retry_of"] == first


def test_a_filter_needs_its_name_a_yes_and_can_be_tried_first(holdbeat: Command) -> None:
    ids = {holdbeat.submit("story", "--label", "team=crawl") for _ in range(3)}
    other = holdbeat.submit("story")
    assert "say --filter" in holdbeat("cancel", "--type", "story", code=2).err
    assert "all jobs" in holdbeat("cancel", "--filter", code=2).err
    assert "Say which" in holdbeat("cancel", code=2).err
    assert "not both" in holdbeat("cancel", other, "--filter", "--type", "story", code=2).err
    assert "Say --yes" in holdbeat("cancel", "--filter", "--label", "team=crawl", code=2).err
    tried = holdbeat("cancel", "--filter", "--label", "team=crawl", "--dry-run", "--json").json
    assert set(tried["ids"]) == ids and show(holdbeat, min(ids))["status"] == "QUEUED"
    done = holdbeat("cancel", "--filter", "--label", "team=crawl", "--yes", "--json").json
    assert done["changed"] == 3 and show(holdbeat, other)["status"] == "QUEUED"
    tried = holdbeat("retry", "--filter", "--status", "CANCELLED", "--dry-run", "--json").json
    assert set(tried["ids"]) == ids


def test_a_pause_is_kept_and_shown_until_somebody_resumes(holdbeat: Command) -> None:
    holdbeat.submit("story")
    assert "slow is paused" in holdbeat("queue", "pause", "--resource", "slow", "--reason", "\u200bevil").out
    assert "Everything is paused" in holdbeat("queue", "pause").out
    listed = holdbeat("queue", "list")
    assert "Everything is paused" in listed.out and r"\u200bevil" in listed.out
    holdbeat("queue", "resume", "--resource", "slow")
    assert holdbeat("queue", "resume").out.strip() == "Nothing is paused."


def test_lists_go_on_where_they_ended(holdbeat: Command) -> None:
    ids = [holdbeat.submit("story") for _ in range(3)]
    page = holdbeat("jobs", "--limit", "2", "--json").json
    rest = holdbeat("jobs", "--limit", "2", "--cursor", page["next_cursor"], "--json").json
    assert [job["id"] for job in page["items"] + rest["items"]] == ids[::-1]
    assert f"--cursor {page['next_cursor']}" in holdbeat("jobs", "--limit", "2").err


def test_groups_templates_and_webhooks_have_their_verbs(holdbeat: Command) -> None:
    template = holdbeat("templates", "create", "--", "$(id)", "story", "prompt=x").out.strip()
    assert "$(id)" in holdbeat("templates", "list").out
    assert "name" in holdbeat("templates", "create", "$(id)", "story", code=1).err
    assert show(holdbeat, holdbeat.submit("--template", "$(id)", "words=2"))["params"] == {"prompt": "x", "words": 2}
    assert holdbeat("templates", "edit", template, "--priority", "4", "--json").json["version"] == 2
    assert "version 2" in holdbeat("templates", "edit", template, "--priority", "5", "--version", "1", code=1).err
    holdbeat("templates", "archive", template)
    assert "archived" in holdbeat("submit", "--template", template, code=1).err

    asked = {"mode": "sequential", "jobs": [{"type": "story"}, {"type": "story", "params": {"words": 1}}]}
    group = holdbeat("groups", "create", json.dumps(asked)).out.strip()
    assert "sequential" in holdbeat("groups", "list").out
    assert len(holdbeat("groups", "show", group, "--json").json["jobs"]) == 2
    assert holdbeat("groups", "cancel", group, "--json").json["status"] == "CANCELLED"
    holdbeat("groups", "cancel", group, code=1)
    assert "jobs" in holdbeat("groups", "create", '{"mode": "parallel"}', code=2).err
    assert "mode" in holdbeat("groups", "create", '{"jobs": []}', code=2).err

    hook = holdbeat("webhooks", "create", "https://example.org/hook", "--event", "job.run.failed", "--json").json
    assert hook["secret"].startswith("whsec_")
    assert hook["secret"] not in holdbeat("webhooks", "list", "--json").out
    assert holdbeat("webhooks", "edit", hook["id"], "--disable", "--json").json["enabled"] is False
    assert holdbeat("webhooks", "rotate", hook["id"], "--json").json["secret"] != hook["secret"]
    refusal = holdbeat("webhooks", "delete", hook["id"], code=2).err
    assert "https://example.org/hook" in refusal and "--yes" in refusal
    assert holdbeat("webhooks", "list", "--json").json["items"], "it is still there"
    holdbeat("webhooks", "delete", hook["id"], "--yes")
    holdbeat("webhooks", "delete", hook["id"], "--yes", code=4)
    assert holdbeat("deliveries", "list", "--json").json["items"] == []


def test_schedules_can_be_made_paused_explained_and_deleted(holdbeat: Command) -> None:
    made = holdbeat("schedules", "create", "nightly", "story", "words=2", "--cron", "0 3 * * *", "--json").json
    assert made["cron"] == "0 3 * * *" and made["params"] == {"words": 2}
    assert "nightly" in holdbeat("schedules", "list").out
    assert holdbeat("schedules", "edit", "nightly", "--interval", "10m", "--json").json["interval_s"] == 600
    paused = holdbeat("schedules", "pause", "nightly", "--reason", "upgrade", "--json").json
    assert paused["paused_indefinitely"] and "paused" in holdbeat("schedules", "explain", "nightly").out
    holdbeat("schedules", "resume", "nightly")
    job_id = holdbeat("schedules", "trigger", "nightly").out.strip()
    assert show(holdbeat, job_id)["schedule_id"] == made["id"]
    assert "manual" in holdbeat("schedules", "occurrences", "nightly").out
    assert len(holdbeat("schedules", "preview", "nightly", "-n", "3", "--json").json["items"]) == 3
    vienna = ["--timezone", "Europe/Vienna", "--after", "2026-03-28T12:00:00Z", "-n", "1"]
    answer = holdbeat("schedules", "preview", "--cron", "30 2 * * *", *vienna, "--json").json
    assert answer["items"][0]["note"] == "gap"
    assert holdbeat("schedules", "disable", "nightly", "--json").json["enabled"] is False
    assert "Say --yes" in holdbeat("schedules", "delete", "nightly", code=2).err
    holdbeat("schedules", "delete", "nightly", "--yes")
    holdbeat("schedules", "show", "nightly", code=4)


def test_endpoints_have_the_same_verbs_and_keep_their_secrets(holdbeat: Command) -> None:
    added = (
        "endpoints",
        "create",
        "shop",
        "http://127.0.0.1:1/",
        "--interval",
        "5m",
        "--header",
        "Authorization=secret",
    )
    assert holdbeat(*added, "--json").json["headers"] == {"Authorization": "[redacted]"}
    assert "secret" not in holdbeat("endpoints", "show", "shop", "--json").out
    assert holdbeat("endpoints", "hint", "shop", "--interval", "30s", "--json").json["hint_interval_s"] == 30
    assert holdbeat("endpoints", "hint", "shop", "--clear", "--json").json["hint_interval_s"] is None
    assert holdbeat("endpoints", "test", "shop", "--json", code=1).json["ok"] is False
    assert holdbeat("endpoints", "health", "shop", "--json").json["failure_count"] == 0
    holdbeat("schedules", "show", "shop", code=4)
