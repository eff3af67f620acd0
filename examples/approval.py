"""Approval: a model drafts a letter, a person says yes in the dashboard, then it is sent; days may lie between.

    holdbeat serve examples.approval:app
    holdbeat submit newsletter topic="the harbour" to='["ann@example.org", "bob@example.org"]' outbox=outbox

The question is on the overview of the dashboard (http://127.0.0.1:7450), and `holdbeat answer` answers it as well.
While it is open the job holds no slot, and restarts and crashes change nothing. The draft is written once, and nobody
gets the letter twice. The model is asked through Ollama's HTTP API at OLLAMA_URL (http://127.0.0.1:11434).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx2

from holdbeat import App, Context

OLLAMA_URL = os.environ.get("OLLAMA_URL", "http://127.0.0.1:11434")
MODEL = os.environ.get("OLLAMA_MODEL", "llama3.2")

app = App(concurrency="resources:default=4,http=256", slots=4)


async def draft(topic: str) -> str:
    """Lets the model write the letter."""
    request = {"model": MODEL, "prompt": f"Write a short newsletter about {topic}.", "stream": False}
    async with httpx2.AsyncClient(timeout=httpx2.Timeout(30, read=600)) as client:
        answer = await client.post(f"{OLLAMA_URL}/api/generate", json=request)
        answer.raise_for_status()
        return str(answer.json()["response"])


def send(outbox: str, recipient: str, letter: str) -> str:
    """Puts a letter into the folder from which mail is sent. Twice is the same as once: its file has one name."""
    folder = Path(outbox)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{recipient}.eml"
    part = folder / f".{name}.part"
    part.write_text(f"To: {recipient}\n\n{letter}\n", encoding="utf-8")
    part.rename(folder / name)
    return name


@app.job(retries=3)
async def newsletter(ctx: Context, topic: str, to: list[str], outbox: str) -> dict[str, Any]:
    """Drafts a letter, asks whether it may go out, and sends it."""
    letter = await ctx.step("draft", draft, topic)
    answer = await ctx.ask(f"Send this to {len(to)} people?\n\n{letter}", choices=["yes", "no"])
    if answer != "yes":
        return {"sent": 0}
    for recipient in to:
        await ctx.step(f"send to {recipient}", send, outbox, recipient, letter)
    return {"sent": len(to)}
