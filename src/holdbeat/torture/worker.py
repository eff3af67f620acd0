"""One of the processes of a torture: `python -m holdbeat.torture.worker '{"store": …}'`.

A whole `holdbeat serve` without the port: worker, trigger, webhooks and recovery. Now and then it makes a direct
request to itself and its like. It ends when its parent does.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time

from holdbeat.app import App, DirectFailed
from holdbeat.domain.errors import HoldbeatError, Unavailable
from holdbeat.observe.logs import configure
from holdbeat.settings import Settings
from holdbeat.torture.handlers import torture_app
from holdbeat.torture.processes import CANNOT_START
from holdbeat.torture.witness import PROCESS, note
from holdbeat.wiring import Composition

REQUEST_EVERY_S = 0.7


def _end_with_parent() -> None:
    # Not through sys.stdin: its lock would be held at the interpreter's end, which is fatal there.
    while os.read(0, 1):
        pass
    os._exit(1)


def _make_requests(app: App) -> None:
    choice = random.Random()
    process = os.environ.get(PROCESS, "worker")  # not the pid: the system gives that of a dead process to another one
    number = 0
    while True:
        time.sleep(choice.uniform(0.5, 1.5) * REQUEST_EVERY_S)
        if app._supervisor is None or app._supervisor._loop is None:
            continue
        number += 1
        token = f"{process}-{number}"
        note("asked", token=token)
        try:
            app.direct_sync(choice.choice(["work", "alone"]), wait_s=5, seconds=0.02, token=token)
        except DirectFailed:
            note("answered", token=token, outcome="FAILED")
        except HoldbeatError as error:
            note("answered", token=token, outcome=f"refused: {error.code}")
        else:
            note("answered", token=token, outcome="COMPLETED")


def main() -> int:
    settings = Settings().with_changes(**json.loads(sys.argv[1]))
    configure(settings.log_level, settings.log_format)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    app = torture_app(settings)
    threading.Thread(target=_make_requests, args=(app,), daemon=True).start()
    try:
        return Composition().serve(app, has_api=False, kind="serve")
    except Unavailable as error:
        print(error, file=sys.stderr)
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
