"""Handlers that print and log with the standard library, as people write them: `holdbeat worker tests.crash.…`."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import multiprocessing
import os
import signal
import subprocess

from holdbeat import App

app = App()
log = logging.getLogger("shop.orders")


def _talk(kind: str) -> None:
    print(f"printed in {kind}")
    print("in", "pieces", end=" ")
    print("until here")
    log.info("an order of %s", kind, extra={"job": "their own field", "run": 7})
    log.debug("not this")


@app.job(retries=0)
async def talk_async() -> None:
    _talk("async")
    await asyncio.gather(asyncio.to_thread(log.warning, "from a thread of async"))


@app.job(retries=0)
def talk_thread() -> None:
    _talk("thread")


@app.job(retries=0, isolation="process")
def talk_process() -> None:
    _talk("process")


@app.job(retries=0)
def fail() -> None:
    raise ValueError("the shop is closed")


@app.job(retries=0, isolation="process")
def fail_in_process() -> None:
    raise ValueError("the shop is closed")


@app.job(retries=0)
def flood() -> None:
    for number in range(40_000):
        print(number, "x" * 60)


RAW = ["sh", "-c", "echo raw; echo err >&2"]


def _talk_raw(name: str) -> None:
    subprocess.run(RAW, check=True)
    os.write(2, f"from {name}, not \xff UTF-8\n".encode("latin-1"))


@app.job(retries=0)
async def raw_async() -> None:
    _talk_raw("async")


@app.job(retries=0)
def raw_thread() -> None:
    _talk_raw("thread")
    multiprocessing.get_context("fork").Process(target=os.write, args=(1, b"from a fork\n")).start()


@app.job(retries=0)
def raw_native() -> None:
    """Writes more than a pipe holds, as native code that keeps the interpreter's lock does."""
    text = b"native\n" * 30_000
    ctypes.PyDLL(None).write(2, text, len(text))
    os.write(2, b"half a line")


@app.job(retries=0)
def raw_crash() -> None:
    faulthandler.enable(file=2)
    signal.raise_signal(signal.SIGSEGV)  # in this thread


@app.job(retries=0)
def leave_child(fifo: str) -> None:
    subprocess.Popen(["sh", "-c", 'read word < "$1"; echo "$word"', "sh", fifo])
