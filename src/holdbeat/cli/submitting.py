"""Verbs that ask for work: submit, and direct for those who cannot wait."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Generator, Mapping
from typing import Any

import click

from holdbeat.cli.arguments import DURATION, INSTANT, labels, params_of, send_as_meant, without_none
from holdbeat.cli.backend import Backend
from holdbeat.cli.completion import job_types
from holdbeat.cli.job_tables import job_fields
from holdbeat.cli.logs import chunk_text
from holdbeat.cli.options import JSON, LABELS, PRIORITY, example, reaching, words_of
from holdbeat.cli.output import instant, print_json, say, show, shown, without_controls
from holdbeat.cli.waiting import ticking, wait_in_sight
from holdbeat.schemas.durable import OnUpstream
from holdbeat.schemas.field_bounds import ATTEMPTS_MAX, HEAVIEST
from holdbeat.schemas.jobs import OnDuplicate, UniqueWhile


@click.command(
    epilog=example(
        "holdbeat submit story prompt='a fox' words=500 --wait",
        "holdbeat submit --template nightly --params @params.json --priority 10",
    )
)
@click.argument("words", nargs=-1, metavar="[TYPE] [KEY=VALUE]...", shell_complete=job_types)
@click.option("--template", help="Create it from this template instead of a type.")
@click.option("--params", "source", metavar="JSON|@FILE|-", help="Params as a JSON object; KEY=VALUE overrides them.")
@PRIORITY
@click.option("--resource", help="The resource whose slot it needs.")
@click.option(
    "--delay", "delay_s", type=DURATION, help="Do not start before this much time has passed, e.g. 90s or 1h30m."
)
@click.option(
    "--not-before",
    type=INSTANT,
    help="Do not start before this instant, e.g. 2026-01-31T09:30:00Z; local time without a zone.",
)
@click.option("--timeout", "timeout_s", type=DURATION, help="End the run after this long.")
@click.option(
    "--max-attempts", type=click.IntRange(0, ATTEMPTS_MAX), help="How many times it is retried after failures."
)
@click.option(
    "--idempotency-key",
    "--key-idempotency",
    "idempotency_key",
    help="A second submission with this key finds the same job.",
)
@LABELS
@click.option("--title", help="Its title in lists, instead of its params.")
@click.option("--partition", help="The partition by which limits count it, e.g. a customer.")
@click.option("--weight", type=click.IntRange(1, HEAVIEST), help="How many slots of its resource it takes.")
@click.option("--preempt", is_flag=True, default=None, help="May interrupt a preemptible job of lower priority.")
@click.option("--webhook-url", help="Send a webhook to this URL when it ends.")
@click.option(
    "--after", "upstreams", multiple=True, metavar="[NAME=]JOB",
    help="Start when this job has ended; may be repeated. The handler reads its result as NAME.",
)  # fmt: skip
@click.option("--after-group", "upstream_groups", multiple=True, metavar="[NAME=]GROUP", help="The same for a group.")
@click.option("--on-upstream", type=words_of(OnUpstream), help="What to do if one of these does not complete (cancel).")
@click.option("--unique-key", help="Let only one job with this key wait, or be unfinished.")
@click.option("--unique-while", type=words_of(UniqueWhile), help="How long it holds the key.")
@click.option("--on-duplicate", type=words_of(OnDuplicate), help="What to do if another job holds the key.")
@click.option(
    "--max-wait", "max_wait_s", type=DURATION, help="Let push_back delay the start by at most this, in total."
)
@click.option("--expires-in", "expires_in_s", type=DURATION, help="Skip it if it has not started after this long.")
@click.option("--expires-at", type=INSTANT, help="Skip it if it has not started by this instant.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit 1 unless it is COMPLETED or SKIPPED.")
@click.option("--wait-timeout", "wait_s", type=DURATION, help="Wait no longer than this.")
@JSON
@reaching
def submit(
    backend: Backend,
    words: tuple[str, ...],
    source: str | None,
    label_words: tuple[str, ...],
    max_attempts: int | None,
    upstreams: tuple[str, ...],
    upstream_groups: tuple[str, ...],
    wait: bool,
    wait_s: float | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Submit a job: its TYPE, and its params as KEY=VALUE.

    A value that is valid JSON is read as JSON (3, true, [1,2]), anything else as text. Where a param takes only text,
    3 is text as well; where it takes both, write '"3"' for the text. A TYPE that begins with a dash follows two dashes:
    holdbeat submit -- --odd-name.
    """
    words, type_ = _type_and_words(words, fields["template"])
    request = {
        **without_none({"type": type_, **fields, "labels": labels(label_words) or None}),
        "params": params_of(words, source),
    }
    after = [_upstream("job_id", word) for word in upstreams]
    after += [_upstream("group_id", word) for word in upstream_groups]
    if after:
        request["after"] = after
    if max_attempts is not None:
        request["retry_policy"] = {"max_attempts": max_attempts}
    # The client gives every submission a key, to send it again safely; so a store gets one as well.
    request.setdefault("idempotency_key", str(uuid.uuid4()))
    job = send_as_meant(backend, words, request, backend.submit_job)
    if not (wait or wait_s is not None):
        show(job, lambda answer: [answer["id"]], as_json=as_json)
        return
    job = wait_in_sight(backend, job, wait_s)
    show(job, lambda answer: [job_fields(answer)], as_json=as_json)
    if job["status"] not in ("COMPLETED", "SKIPPED"):
        raise click.exceptions.Exit(1)


def _upstream(kind: str, word: str) -> dict[str, str]:
    name, sign, upstream_id = word.rpartition("=")
    return {kind: upstream_id, **({"as": name} if sign else {})}


def _type_and_words(words: tuple[str, ...], template: str | None) -> tuple[tuple[str, ...], str | None]:
    if template is not None:
        if words and "=" not in words[0]:
            raise click.UsageError("A template has its type already: give a TYPE or --template, not both.")
        return words, None
    if not words:
        raise click.UsageError("Say what to run: a TYPE, or --template NAME.")
    return words[1:], words[0]


@click.command(
    epilog=example("holdbeat direct story prompt='a fox' --wait-timeout 30s", "holdbeat direct story --stream")
)
@click.argument("type_", metavar="TYPE", shell_complete=job_types)
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--params", "source", metavar="JSON|@FILE|-", help="Params as a JSON object; KEY=VALUE overrides them.")
@click.option("--wait-timeout", "wait_s", type=DURATION, help="Wait no longer than this for a slot.")
@click.option("--preempt", is_flag=True, help="May interrupt a preemptible job if no slot is free.")
@click.option("--stream", "streams", is_flag=True, help="Print what the handler emits, as it does so.")
@JSON
@reaching
def direct(
    backend: Backend,
    type_: str,
    words: tuple[str, ...],
    source: str | None,
    wait_s: float | None,
    preempt: bool,
    streams: bool,
    as_json: bool,
) -> None:
    """Run a job TYPE in the next free slot, ahead of the queue, and print its result."""
    params = params_of(words, source)
    if streams:
        return print_stream(backend.stream_direct(type_, params, wait_s=wait_s, preempt=preempt), as_json=as_json)
    with ticking(f"{shown(type_)} waits for a slot, or runs"):
        answer = send_as_meant(
            backend,
            words,
            {"type": type_, "params": params},
            lambda request: backend.direct(type_, request["params"], wait_s=wait_s, preempt=preempt),
        )
    print_direct(answer, as_json=as_json)


def print_direct(answer: Mapping[str, Any], *, as_json: bool) -> None:
    """The result, for people or for programs."""
    if as_json:
        print_json(answer)
    elif answer["outcome"] == "SKIPPED":
        say(f"SKIPPED: {shown(answer.get('reason'))}")
    elif isinstance(answer["result"], str):
        click.echo(without_controls(answer["result"]) if sys.stdout.isatty() else answer["result"])
    else:
        print_json(answer["result"])


def print_stream(messages: Generator[Any, None, None], *, as_json: bool) -> None:
    """Chunks to stdout as they come, how it waits to stderr; the result only if nothing was emitted."""
    last = ""
    for message in messages:
        if as_json:
            click.echo(json.dumps({"event": message.event, "data": message.data}, ensure_ascii=False))
        elif message.event == "chunk":
            last = chunk_text(message.data["chunk"])
            click.echo(last, nl=False)
        elif message.event == "waiting" and sys.stderr.isatty():
            start = message.data["estimated_start"]
            when = f", starts about {instant(start)}" if start else ""
            click.echo(f"waits for a slot as number {message.data['place']}{when}", err=True)
        elif message.event == "result":
            if last:
                click.echo("" if last.endswith("\n") else "\n", nl=False)
            else:
                print_direct(message.data, as_json=False)
        sys.stdout.flush()
