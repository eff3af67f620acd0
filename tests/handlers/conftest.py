"""The stores of the engine's tests, for handlers."""

from __future__ import annotations

from tests.engine.conftest import holdbeat_clock, holdbeat_stage, store_url

__all__ = ["holdbeat_clock", "holdbeat_stage", "store_url"]
