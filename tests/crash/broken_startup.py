"""An App whose worker cannot start."""

from __future__ import annotations

import logging

from holdbeat import App

app = App()
print("printed while it is imported")


@app.on_startup
def load() -> None:
    logging.getLogger("shop.models").info("looking for the model")
    raise OSError("no such model")
