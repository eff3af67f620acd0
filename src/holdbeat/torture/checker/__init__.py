"""The history checker: decides from plain rows whether a scheduler kept its promises.

It knows nothing of the store or the engine. It is handed what was acknowledged, what handlers themselves saw, and the
tables as they stand in the end, and computes what must be true from these alone.
"""

from __future__ import annotations

from holdbeat.torture.checker.checks import CHECKS, check
from holdbeat.torture.checker.history import History, Violation

__all__ = ["CHECKS", "History", "Violation", "check"]
