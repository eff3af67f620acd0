"""The docs site shows every page and every public method, and its links lead somewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from holdbeat import App, AsyncClient, Client, Context, JobHandle, testing
from holdbeat.client.async_client import AsyncEndpoints
from holdbeat.client.blocking_client import Endpoints
from tests.docs.pages import ROOT
from tools import build_docs

REFERENCE = (ROOT / "tools/docs/python.md").read_text("utf-8")
SHOWN = [App, JobHandle, Context, Client, Endpoints, AsyncClient, AsyncEndpoints, testing.Stage, testing.StageSync]
INTERNAL = {"is_log_full", "write_log"}


@pytest.mark.parametrize("shown", SHOWN, ids=lambda value: value.__name__)
def test_every_public_method_in_the_python_reference_has_a_docstring(shown: type) -> None:
    assert f"autoclass:: {shown.__module__}.{shown.__qualname__}\n" in REFERENCE or "testing" in shown.__module__
    silent = []
    for name, member in inspect.getmembers(shown):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and name not in INTERNAL and callable(function) and not inspect.getdoc(function):
            silent.append(name)
    assert silent == []


def test_the_python_reference_names_only_what_exists() -> None:
    names = re.findall(r"auto(?:class|exception|function|module):: (\S+)", REFERENCE)
    assert len(names) > 10
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert name == "holdbeat.testing" or hasattr(__import__(module, fromlist=[attribute]), attribute), name


def test_the_menu_lists_every_page_once() -> None:
    known = {*build_docs.pages(), build_docs.PYTHON}
    listed = re.findall(r"^[\w/.-]+$", build_docs.menu(known), re.MULTILINE)
    assert sorted(listed) == sorted(page.removesuffix(".md") for page in known if page != build_docs.START)


@pytest.mark.parametrize(
    ("address", "prepared"),
    [
        ("concepts.md#jobs", "concepts.md#jobs"),
        ("https://example.org/a.md", "https://example.org/a.md"),
        ("#here", "#here"),
        ("../README.md#status", "../index.md#status"),
        ("../deploy/Containerfile", "https://github.com/holdbeat/holdbeat/blob/main/deploy/Containerfile"),
        ("decisions", "https://github.com/holdbeat/holdbeat/tree/main/docs/decisions"),
        ("gone.md", "gone.md"),
    ],
)
def test_links_lead_to_a_page_of_the_site_or_to_the_repository(address: str, prepared: str) -> None:
    text = f"see [this]({address})\n"
    known = set(build_docs.pages())
    assert build_docs.prepared(text, "docs/governor.md", known) == f"see [this]({prepared})\n"


def test_blocks_of_code_are_left_as_they_are() -> None:
    text = "```python\nx = [a](../deploy/b)\n```\n"
    assert build_docs.prepared(text, "docs/governor.md", set()) == text


def test_every_page_is_copied_to_its_own_place(tmp_path: Path) -> None:
    build_docs.stage(tmp_path)
    assert (tmp_path / "index.md").read_text("utf-8").startswith("# Holdbeat\n")
    pages = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}
    assert pages == {*build_docs.pages(), build_docs.PYTHON, "index.md"} - {build_docs.START}
