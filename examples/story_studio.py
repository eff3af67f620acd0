"""Story studio: one local model, long generations in a queue, and direct requests that are served next.

    holdbeat serve examples.story_studio:app

Then, from a second shell:

    holdbeat submit story prompt="a lighthouse" words=800
    curl -X POST localhost:7450/story/generate -d '{"params": {"prompt": "a fox"}}'

The curl call waits for the story that is being written, goes before everything that is queued, and gets its answer.
The model is asked through Ollama's HTTP API at OLLAMA_URL (http://127.0.0.1:11434).
"""

from __future__ import annotations

import json
import os
from typing import Any

import httpx2

from holdbeat import App, Context, PermanentFailure

OLLAMA_URL = os.environ.get("OLLAMA_URL", "http://127.0.0.1:11434")
MODEL = os.environ.get("OLLAMA_MODEL", "llama3.2")

app = App(
    concurrency="resources:ollama=1,default=4,http=256",
    slots=4,
    direct_routes={"/story/generate": "story", "/research/run": "research"},
)


async def generate(ctx: Context, prompt: str, expected_words: int) -> str:
    """Asks the model and tells of every piece it sends; stops at once when the job is cancelled."""
    words: list[str] = []
    async with (
        httpx2.AsyncClient(timeout=httpx2.Timeout(30, read=600)) as client,
        client.stream("POST", f"{OLLAMA_URL}/api/generate", json={"model": MODEL, "prompt": prompt}) as answer,
    ):
        if answer.status_code == 404:
            raise PermanentFailure(f"Ollama has no model {MODEL}. Fetch it with: ollama pull {MODEL}")
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            ctx.checkpoint()
            if not line:
                continue
            piece: dict[str, Any] = json.loads(line)
            words.append(piece.get("response", ""))
            ctx.progress(min(0.99, len(words) / expected_words), f"{len(words)} words")
            if piece.get("done"):
                break
    return "".join(words)


@app.job(resource="ollama", timeout="10m", retries=3)
async def story(ctx: Context, prompt: str, words: int = 500) -> dict[str, Any]:
    """Writes a story."""
    text = await generate(ctx, f"Write a story of {words} words about {prompt}.", words)
    await ctx.artifact("story.txt", text)
    ctx.progress(1.0, "written")
    return {"text": text, "words": len(text.split())}


@app.job(resource="ollama", timeout="20m", retries=3)
async def research(ctx: Context, question: str) -> dict[str, Any]:
    """Answers a question in two passes: what to look at, then the answer."""
    outline = await generate(ctx, f"List what one must know to answer: {question}", 200)
    ctx.log("outline written")
    answer = await generate(ctx, f"{question}\nConsider:\n{outline}", 400)
    ctx.progress(1.0, "answered")
    return {"outline": outline, "answer": answer}
