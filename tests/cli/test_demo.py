"""The demo always has something to reorder, and says when it is not where it was asked to be."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner

from holdbeat.demo import CONCURRENCY, STORIES_WAITING, demo, make_app
from holdbeat.settings import Settings
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.queue.pauses import pause
from holdbeat.store.reads.queue_view import queue


class NoRequests(random.Random):
    """Dice by which nobody makes a direct request."""

    def random(self) -> float:
        return 0.99


def test_after_each_visit_of_the_editor_the_same_handful_of_stories_waits(
    holdbeat_stage_sync: Callable[..., Any],
) -> None:
    settings = Settings().with_changes(slots=7, concurrency=CONCURRENCY)
    app = make_app(settings, pace=0, chance=NoRequests(1))
    with holdbeat_stage_sync(app) as stage:
        app.store.write_sync(pause, "gpu", by="test")
        for _ in range(4):
            app.enqueue_sync("editor")
            stage.drain()
            waiting = app.store.read_sync(queue, "gpu").items
            assert len(waiting) == STORIES_WAITING >= 5
            assert len({entry.job.priority for entry in waiting}) == 1, "jobs of one priority can be reordered"
            for entry in waiting[:3]:
                app.store.write_sync(cancel_job, entry.job.id, None)


class Served:
    """Serves nothing, so that the demo ends at once."""

    def serve(self, app: Any) -> int:
        return 0


def test_the_demo_says_that_its_port_is_taken_and_which_it_takes() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        output = CliRunner().invoke(demo, ["--port", str(port)], obj=Served())
        assert output.exit_code == 0
        assert f"Port {port} is taken" in output.stderr and f":{port} " not in output.stdout
    assert "taken" not in CliRunner().invoke(demo, ["--port", "0"], obj=Served()).stderr
