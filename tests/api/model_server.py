"""A stand-in for a model server that speaks Ollama's protocol, and judges whether two requests overlapped.

It has one model: a second request while one is worked on is an overlap, also if nobody waits for the first one any
more. Most paths look whether their client is still there, as model servers do; `/deaf` does not.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL_PATHS = ("/api/generate", "/api/chat", "/v1/chat/completions", "/echo", "/hang", "/broken", "/half", "/slow",
               "/deaf")  # fmt: skip


class ModelServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.working: list[socket.socket] = []
        """The connections of the requests that are worked on."""
        self.most_at_once = 0
        self.cut = 0
        """Requests of which the connection was closed while they were answered."""
        self.requests: list[dict[str, Any]] = []
        self.token_s = 0.01
        self.go_on = threading.Event()
        """`/slow` sends its second half, and `/deaf` begins to answer, when this is set."""
        self.begin = threading.Event()
        """Requests are worked on when this is set."""
        self.begin.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def uses_model(self, connection: socket.socket) -> Iterator[None]:
        with self.lock:
            self.working.append(connection)
            self.most_at_once = max(self.most_at_once, len(self.working))
        try:
            self.begin.wait()
            yield
        except OSError:
            self.cut += 1
            raise
        finally:
            self.end(connection)

    def end(self, connection: socket.socket) -> None:
        """The model has done its work for a request: before the last byte is sent, since then the next may come."""
        with self.lock:
            if connection in self.working:
                self.working.remove(connection)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_GET

    def _answer(self) -> None:
        body = self._body()
        seen = {"method": self.command, "path": self.path, "headers": list(self.headers.items()), "body": body}
        with self.server.lock:
            self.server.requests.append(seen)
        path = self.path.partition("?")[0]
        if path not in MODEL_PATHS:
            return self._json({"models": [{"model": "stand-in"}], "path": self.path})
        with self.server.uses_model(self.connection):
            getattr(self, "_" + path.strip("/").replace("/", "_"))(body)

    def _body(self) -> bytes:
        """The whole body; a part of one is refused as every server does."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self._exactly(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().strip() or b"-1", 16):
            parts.append(self._exactly(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        content = self.rfile.read(size) if size >= 0 else b""
        if len(content) != size:
            raise ConnectionError("the body is not whole")
        return content

    def _json(self, value: Any, status: int = 200) -> None:
        content = json.dumps(value).encode()
        self.server.end(self.connection)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Keep-Alive", "timeout=5")
        self.send_header("X-Model", "stand-in")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, kind: str, lines: list[str], looks: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            if looks and is_closed(self.connection):
                self.close_connection = True
                return
            self._chunk(line.encode())
            time.sleep(self.server.token_s)
        self._last_chunk()

    def _last_chunk(self) -> None:
        self.server.end(self.connection)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _api_generate(self, body: bytes) -> None:
        asked = json.loads(body)
        words = f"Once upon a time: {asked['prompt']}".split(" ")
        if asked.get("stream") is False:
            return self._json({"model": "stand-in", "response": " ".join(words), "done": True})
        lines = [json.dumps({"model": "stand-in", "response": word + " ", "done": False}) + "\n" for word in words]
        self._stream("application/x-ndjson", [*lines, '{"model":"stand-in","response":"","done":true}\n'])

    def _api_chat(self, body: bytes) -> None:
        asked = json.loads(body)
        words = f"You said: {asked['messages'][-1]['content']}".split(" ")
        messages = [{"role": "assistant", "content": word + " "} for word in words]
        if asked.get("stream") is False:
            return self._json(
                {"model": "stand-in", "message": {"role": "assistant", "content": " ".join(words)}, "done": True}
            )
        lines = [json.dumps({"model": "stand-in", "message": message, "done": False}) + "\n" for message in messages]
        end = '{"model":"stand-in","message":{"role":"assistant","content":""},"done":true}\n'
        self._stream("application/x-ndjson", [*lines, end])

    def _v1_chat_completions(self, body: bytes) -> None:
        asked = json.loads(body)
        words = f"You said: {asked['messages'][-1]['content']}".split(" ")
        base = {"id": "c1", "created": 1, "model": "stand-in"}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": " ".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return self._json({**base, "object": "chat.completion", "choices": [choice]})
        lines = []
        for word in words:
            choice = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
            lines.append(f"data: {json.dumps({**base, 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n")
        self._stream("text/event-stream", [*lines, "data: [DONE]\n\n"])

    def _echo(self, body: bytes) -> None:
        self._json({"size": len(body)})

    def _hang(self, body: bytes) -> None:
        while not is_closed(self.connection):
            time.sleep(0.01)
        self.close_connection = True

    def _broken(self, body: bytes) -> None:
        self._json({"error": "the model is broken"}, 500)

    def _half(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"half")
        self.wfile.flush()
        self.close_connection = True

    def _deaf(self, body: bytes) -> None:
        """Works without a look at the connection, then answers until that fails or the end is reached."""
        self.server.go_on.wait()
        self._stream("text/plain", ["word "] * 200, looks=False)

    def _slow(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b"first")
        while not self.server.go_on.wait(0.01):
            if is_closed(self.connection):
                self.close_connection = True
                return
        self._chunk(b"second")
        self._last_chunk()


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """A running stand-in."""
    server = ModelServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
