"""Text can be read: every colour of text against every ground that it stands on, in both themes."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

TOKENS = (files("holdbeat.web") / "static" / "tokens.css").read_text()
THEMES = {
    theme: dict(re.findall(r"--([a-z-]+): light-dark\(" + place + r"\)", TOKENS))
    for theme, place in (("light", "(#[0-9a-f]{6}), #[0-9a-f]{6}"), ("dark", "#[0-9a-f]{6}, (#[0-9a-f]{6})"))
}
STATES = ("queued", "running", "completed", "failed", "skipped", "cancelled", "direct")
PAIRS = [
    *((text, ground) for text in ("text", "muted", "faint", "accent") for ground in ("ground", "card", "sunken")),
    *((state, ground) for state in STATES for ground in ("ground", "card")),
    ("accent", "accent-soft"),
    ("warn", "warn-soft"),
    ("failed", "failed-soft"),
    ("completed", "completed-soft"),
    ("on-accent", "accent"),
    ("on-failed", "failed"),
    ("ground", "text"),
]


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.rule("UI-02")
@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out_from_every_ground_by_at_least_four_and_a_half_to_one(theme: str) -> None:
    colours = THEMES[theme]
    low = {pair: round(_contrast(*(colours[name] for name in pair)), 2) for pair in PAIRS}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}
