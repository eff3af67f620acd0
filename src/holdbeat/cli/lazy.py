"""Modules that are loaded when something of them is first used: a verb should not wait for what it does not need."""

from __future__ import annotations

import importlib
from typing import Any


class Lazy:
    """Stands for a module until then."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
