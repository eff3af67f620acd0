"""Ingest pipeline: crawl → chunk → embed → upsert over one site, on as many workers as you like.

    holdbeat serve examples.ingest_pipeline:app
    holdbeat submit ingest site=http://127.0.0.1:8000/ index=index.db

Each page is one step of the job: what was read, embedded and stored is kept for the whole chain. So a retry, after a
crash or after a cancel half-way, is given the links of those pages and goes on with the next one. The fence protects
the index: a worker that lost its lease can no longer write to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import apsw
import httpx2

from holdbeat import App, Context, PermanentFailure

PAGES_MAX = 200
CHUNK_WORDS = 60
DIMENSIONS = 16

app = App(concurrency="resources:default=4,http=256", slots=4)


class Page(HTMLParser):
    """Text and links of one page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]

    def handle_data(self, data: str) -> None:
        self.words += data.split()


class Index:
    """Where chunks end up: a SQLite file that refuses writers with an old fence."""

    def __init__(self, path: str, site: str, fence: int) -> None:
        self._connection = apsw.Connection(path)
        self._connection.set_busy_timeout(5000)
        self._site, self._fence = site, fence
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS chunks (id TEXT PRIMARY KEY, url TEXT, text TEXT, embedding TEXT);"
            "CREATE TABLE IF NOT EXISTS fences (site TEXT PRIMARY KEY, fence INTEGER)"
        ).fetchall()
        with self._held():
            pass  # from here on whoever held the site before is refused, also before the first page is written

    @contextmanager
    def _held(self) -> Iterator[None]:
        """A transaction that begins only if nobody with a newer fence works on the site."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            newest = self._connection.execute("SELECT fence FROM fences WHERE site = ?", (self._site,)).get
            if newest is not None and int(newest) > self._fence:
                raise PermanentFailure(f"another run has taken over {self._site}: fence {newest} > {self._fence}")
            self._connection.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (self._site, self._fence))
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def upsert(self, url: str, chunks: list[tuple[str, str, str]]) -> None:
        """One page, whole or not at all. Twice is the same as once: a step may be interrupted after it."""
        with self._held():
            self._connection.execute("DELETE FROM chunks WHERE url = ?", (url,))
            self._connection.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?, ?)", [(id_, url, text, vector) for id_, text, vector in chunks]
            )

    def close(self) -> None:
        self._connection.close()


def chunked(words: list[str]) -> Iterator[str]:
    for start in range(0, len(words), CHUNK_WORDS):
        yield " ".join(words[start : start + CHUNK_WORDS])


def embed(text: str) -> list[float]:
    """A small honest embedding: hashed word counts, so that the example needs no model."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[hashlib.blake2b(word.encode(), digest_size=2).digest()[0] % DIMENSIONS] += 1
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [round(value / length, 4) for value in vector]


async def take_in(client: httpx2.AsyncClient, store: Index, site: str, url: str) -> list[str]:
    """Reads, embeds and stores one page. Returns the links of the same site."""
    answer = await client.get(url)
    if answer.status_code >= 500:
        answer.raise_for_status()  # the site is in trouble: fail, and let a retry go on from here
    if answer.status_code != 200 or "html" not in answer.headers.get("content-type", ""):
        return []
    page = Page(answer.text)
    chunks = [
        (hashlib.sha256(f"{url}#{number}".encode()).hexdigest(), text, repr(embed(text)))
        for number, text in enumerate(chunked(page.words))
    ]
    store.upsert(url, chunks)
    return [link for raw in page.links if _is_inside(site, link := urldefrag(urljoin(url, raw))[0])]


@app.job(timeout="1h", retries=3)
async def ingest(ctx: Context, site: str, index: str) -> dict[str, Any]:
    """Crawls a site and keeps its text in an index."""
    store = Index(index, site, ctx.fence)
    try:
        waiting, seen = [site], set[str]()
        async with httpx2.AsyncClient(timeout=30) as client:
            while waiting and len(seen) < PAGES_MAX:
                url = waiting.pop(0)
                if url in seen:
                    continue
                seen.add(url)
                links = await ctx.step(step_name(url), take_in, client, store, site, url)
                waiting += [link for link in links if link not in seen]
                known = len(seen) + len(set(waiting) - seen)
                ctx.progress(len(seen) / known, url)
        return {"pages": len(seen)}
    finally:
        store.close()


def step_name(url: str) -> str:
    """The page's own name: the same on every attempt, wherever in the crawl it comes."""
    return url if len(url) <= 190 else f"{url[:150]}… {hashlib.sha256(url.encode()).hexdigest()[:16]}"


def _is_inside(site: str, url: str) -> bool:
    return urlsplit(url).netloc == urlsplit(site).netloc
