"""What a soak's samples say: which series ended higher than they began, and a picture of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape

Sample = Mapping[str, float]

ALLOWED: dict[str, tuple[float, float]] = {
    "rss_mb": (4.0, 0.05),
    "descriptors": (4.0, 0.0),
    "threads": (3.0, 0.0),
    "log_mb": (70.0, 0.0),
    "store_mb": (2.0, 0.15),
    "rows": (500.0, 0.15),
}
"""By how much a series may end higher than it began: an amount, and a share of where it began. The write-ahead log of
SQLite is kept at up to 64 MB and used again."""

PASSES = frozenset({"store_mb", "rows"})
SHORTEST_S = 2700.0
"""What has ended is removed in passes ten minutes apart, so these series rise and fall. They are judged by what a pass
leaves, their lowest values, in a run in which several passes fall into each part that is compared: a median says where
between two passes a part began."""

WARM_UP = 0.25
"""The first part of the samples does not count: caches fill, and the first rows have not reached their end."""


def leaks(samples: Sequence[Sample]) -> list[str]:
    """A sentence for each series that ended higher than it began, by more than is allowed."""
    steady = samples[int(len(samples) * WARM_UP) :]
    if len(steady) < 6:
        return [f"Only {len(samples)} samples were taken, too few to tell: run for longer."]
    third = len(steady) // 3
    sentences = []
    for name, (amount, share) in ALLOWED.items():
        is_short = steady[-1]["at_s"] - steady[0]["at_s"] < SHORTEST_S
        if any(name not in sample for sample in steady) or (is_short and name in PASSES):
            continue
        level = min if name in PASSES else statistics.median
        began = level([sample[name] for sample in steady[:third]])
        ended = level([sample[name] for sample in steady[-third:]])
        if ended > began + amount + share * began:
            sentences.append(f"{name} grew from {began:,.1f} to {ended:,.1f}.")
    return sentences


WIDTH, HEIGHT, LEFT, GAP = 760, 90, 110, 34


def picture(samples: Sequence[Sample], title: str) -> str:
    """The series below each other, as SVG."""
    names = [name for name in ALLOWED if samples and name in samples[0]]
    total = GAP * 2 + (HEIGHT + GAP) * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="10" y="22" font-size="15">{escape(title)}</text>'
    ]
    last_s = max((sample["at_s"] for sample in samples), default=1.0) or 1.0
    for number, name in enumerate(names):
        top = GAP + number * (HEIGHT + GAP) + 10
        values = [sample[name] for sample in samples]
        most = max(values) or 1.0
        points = " ".join(
            f"{LEFT + (WIDTH - LEFT - 20) * sample['at_s'] / last_s:.1f},{top + HEIGHT - HEIGHT * value / most:.1f}"
            for sample, value in zip(samples, values, strict=True)
        )
        parts.append(
            f'<line x1="{LEFT}" y1="{top + HEIGHT}" x2="{WIDTH - 20}" y2="{top + HEIGHT}" stroke="#999"/>'
            f'<text x="10" y="{top + 12}">{escape(name)}</text>'
            f'<text x="10" y="{top + 28}" fill="#555">most {most:,.1f}</text>'
            f'<text x="10" y="{top + 44}" fill="#555">last {values[-1]:,.1f}</text>'
            f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>'
        )
    parts.append(f'<text x="{LEFT}" y="{total - 12}" fill="#555">0 to {last_s / 60:.0f} min, each from 0</text></svg>')
    return "".join(parts)
