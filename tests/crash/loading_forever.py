"""An App whose startup function does not return."""

from __future__ import annotations

import threading

from holdbeat import App

app = App()


@app.on_startup
def load() -> None:
    print("loading", flush=True)
    threading.Event().wait()
