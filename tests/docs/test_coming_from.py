"""The pages for people who come from other systems name only what exists here (FRM-05)."""

from __future__ import annotations

import dataclasses
import inspect
import re
from functools import cache
from typing import Any

import click
import pytest

import holdbeat
import holdbeat.client
from holdbeat.domain import errors, events
from holdbeat.domain.group import GroupStatus
from holdbeat.domain.job import JobStatus
from holdbeat.domain.reservation import ReservationStatus
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.schedule import Schedule
from holdbeat.settings import Settings
from tests.docs.pages import ROOT
from tools.write_reference import openapi

PAGES = sorted((ROOT / "docs").glob("coming-from-*.md"))
_ROW = re.compile(r"^\| (?P<theirs>[^|]+) \| (?P<ours>[^|]+) \| (?P<note>[^|]*) ?\|$", re.MULTILINE)
_WORD = re.compile(r"`([^`]+)`")
_ROUTE = re.compile(r"(GET|POST|PATCH|PUT|DELETE) (/\S+)")


@cache
def document() -> dict[str, Any]:
    return openapi()


@cache
def names() -> frozenset[str]:
    """Fields, settings, statuses, kinds, events and classes."""
    schemas = document()["components"]["schemas"].values()
    collected = {name for schema in schemas for name in schema.get("properties", {})}
    collected |= {field.name for kind in (Settings, Schedule) for field in dataclasses.fields(kind)}
    for kind in (JobStatus, GroupStatus, ReservationStatus, ErrorKind):
        collected |= set(kind)
    collected |= {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    collected |= {name for name, value in vars(errors).items() if inspect.isclass(value)}
    classes = re.compile(r"^class (\w+)", re.MULTILINE)
    for path in (ROOT / "src").rglob("*.py"):
        collected |= set(classes.findall(path.read_text(encoding="utf-8")))
    return frozenset(collected)


def exists(word: str) -> bool:
    if route := _ROUTE.fullmatch(word):
        return route[1].lower() in document()["paths"].get(route[2], {})
    if word.startswith("holdbeat "):
        return is_command(word.split()[1:])
    for prefix, owner in (("App.", holdbeat.App), ("ctx.", holdbeat.Context), ("Client.", holdbeat.client.Client)):
        if word.startswith(prefix):
            return hasattr(owner, word.removeprefix(prefix))
    return word in names()


def is_command(words: list[str]) -> bool:
    from holdbeat.cli.main import cli

    command: click.Command | None = cli
    for word in words:
        if not isinstance(command, click.Group):
            return False
        command = command.get_command(click.Context(command), word)
    return command is not None


@pytest.mark.rule("FRM-05")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_word_of_ours_on_a_page_for_newcomers_exists(page: Any) -> None:
    rows = [row for row in _ROW.finditer(page.read_text(encoding="utf-8")) if row["ours"] not in ("ours", "---")]
    assert len(rows) > 20
    unknown = [word for row in rows for word in _WORD.findall(row["ours"]) if not exists(word)]
    assert not unknown, f"{page.name} names what is not there: {unknown}"
    assert not [row[0] for row in rows if not _WORD.search(row["ours"])]


@pytest.mark.rule("FRM-05")
def test_a_word_that_does_not_exist_would_be_noticed() -> None:
    for word in ("GET /api/nothing", "POST /api/stats", "holdbeat nothing", "App.nothing", "ctx.nothing", "nothing_s"):
        assert not exists(word), word
    for word in ("GET /api/stats", "holdbeat queue pause", "App.enqueue", "ctx.checkpoint", "lease_s", "CANCELLED"):
        assert exists(word), word
