"""Processes that run a function of the tests: forks of one that has imported what they need."""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.conformance.crowd", "tests.engine.fatal_statement", "tests.engine.rival_triggers"]
)
