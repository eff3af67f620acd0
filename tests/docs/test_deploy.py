"""What is deployed agrees with the program: the unit, the container, and the settings that the pages show."""

from __future__ import annotations

import configparser
import dataclasses
import re
from pathlib import Path

import pytest

from holdbeat.cli.main import EXIT_CODES
from holdbeat.domain.errors import SettingsError, StoreRefused
from holdbeat.domain.job import DEFAULT_CANCEL_GRACE_S
from holdbeat.settings import Settings
from tests.docs.pages import ROOT, Block, blocks_of, name_of, pages

UNIT = ROOT / "deploy/systemd/holdbeat.service"
TOML = [(page, block) for page in pages() for block in blocks_of(page) if block.language == "toml"]


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text("utf-8"))
    return parser


@pytest.mark.rule("CON-003")
def test_the_unit_waits_longer_than_a_shutdown_may_take(unit: configparser.ConfigParser) -> None:
    settings = Settings()
    assert unit.getfloat("Service", "TimeoutStopSec") > settings.shutdown_grace_s + DEFAULT_CANCEL_GRACE_S


def test_the_unit_does_not_loop_where_starting_again_cannot_help(unit: configparser.ConfigParser) -> None:
    codes = {code for kind, code in EXIT_CODES if kind in (SettingsError, StoreRefused)}
    assert {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()} == codes


def test_unit_and_container_name_settings_that_exist() -> None:
    known = {f"HOLDBEAT_{field.name.upper()}" for field in dataclasses.fields(Settings)} | {"HOLDBEAT_CONFIG"}
    for path in (UNIT, ROOT / "deploy/Containerfile"):
        named = set(re.findall(r"HOLDBEAT_[A-Z_]+", path.read_text("utf-8")))
        assert named and named <= known


@pytest.mark.parametrize(("page", "block"), TOML, ids=[f"{name_of(page)}:{block.line}" for page, block in TOML])
def test_settings_that_a_page_shows_are_accepted(page: Path, block: Block, tmp_path: Path) -> None:
    file = tmp_path / "holdbeat.toml"
    file.write_text(block.text, "utf-8")
    assert Settings.load(environ={}, file=file).origins
