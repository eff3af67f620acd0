"""Server-sent events, taken apart: bytes in, messages out; nothing here waits for anything.

Lines end at line feeds alone. The many other characters that Python counts as line ends may stand inside the data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

COMMENT = "comment"
"""The event of a message that only shows that the server is there."""
_LONGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    event: str
    id: str | None
    data: Any


class MessageReader:
    """Collects the parts of a stream into messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = "message"
        self._id: str | None = None
        self._data: list[str] = []
        self._comment: str | None = None
        self._has_id = False

    def feed(self, part: bytes) -> list[Message]:
        """The messages that this part completes."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > _LONGEST:
            raise ValueError("a line of the stream does not end")
        messages = []
        for line in lines:
            message = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if message is not None:
                messages.append(message)
        return messages

    def _line(self, line: str) -> Message | None:
        if not line:
            return self._complete()
        if line.startswith(":"):
            self._comment = line[1:].strip()
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "id":
                self._id = value
                self._has_id = True
            case "data":
                self._data.append(value)
        return None

    def _complete(self) -> Message | None:
        comment, has_id = self._comment, self._has_id
        self._comment, self._has_id = None, False
        event, data = self._event, self._data
        self._event, self._data = "message", []
        if data:
            return Message(event, self._id, json.loads("\n".join(data)))
        # An id without data says where the stream stands, so that it can be taken up there.
        if comment is None and not has_id:
            return None
        return Message(COMMENT, self._id if has_id else None, comment or "")
