"""Placeholder."""

from __future__ import annotations

from holdbeat.api.routes import Routes

routes = Routes("endpoints")
