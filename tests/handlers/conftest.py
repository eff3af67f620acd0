"""The stores of the engine's tests, for handlers."""

from __future__ import annotations

from tests.engine.conftest import databases, holdbeat_clock, holdbeat_stage, store_url

__all__ = ["databases", "holdbeat_clock", "holdbeat_stage", "store_url"]
