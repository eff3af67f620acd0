"""An App whose worker cannot start."""

from __future__ import annotations

from holdbeat import App

app = App()
print("printed while it is imported")


@app.on_startup
def load() -> None:
    raise OSError("no such model")
