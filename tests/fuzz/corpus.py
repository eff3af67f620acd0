"""Requests that no sensible client sends: strings, values and bodies that break careless programs.

Everything follows from the seed of the generator that is handed in.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

STRINGS = (
    "", " ", "\t\n", "\x00", "a\x00b", "\x1b[2J", "\u202egnp.exe", "\u200b", "\ufeff", "\ud7ff\ue000", "e\u0301", "ﬀ",
    "İ", "ß", "𝒳" * 40, "🧑\u200d🚀", "A" * 300, "A" * 70_000, "%", "_", "!", "'", '"', "\\", "`", ";--", "' OR '1'='1",
    "$1", ":now", "{0}", "%s%n", "${jndi:ldap://127.0.0.1}", "<script>alert(1)</script>", "../../etc/passwd",
    "..%2f..%2f", "file:///etc/passwd", "http://127.0.0.1:1", "http://[::1]:1/", "javascript:alert(1)", "null", "true",
    "NaN", "-0", "1e999", "0x10", "1_000", "２０", "2026-02-30", "2026-11-16T25:00:00Z", "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00Z", "P1D", "* * * * *", "@reboot", "0 0 31 2 *", "*/0 * * * *", "Europe/Nowhere", "QUEUED",
    "00000000-0000-0000-0000-000000000000", "01a1e158-5fba-73af-9ade-43658b66f8bc",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 99, 100, 101, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.1, -0.5, 1e-300,
    1e300, 1.7976931348623157e308,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [None], [[]], {"": ""}, {"id": None}, {"$ref": "#"}, [0] * 2000)
RAW = (
    b"", b" ", b"{", b"[", b"nul", b'"', b"{}{}", b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"type": "echo"', b"{'type': 1}",
    b'{"type": "echo", "type": "fail"}', b'{"type": NaN}', b'{"priority": Infinity}', b'{"type": "\\ud800"}',
    b'{"type": "\xc3"}', b'{"priority": ' + b"9" * 5000 + b"}", b'{"params": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"params": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}", b"true", b"3", b'"text"', b"[]", b"null",
)  # fmt: skip


def any_value(choice: Random) -> Any:
    kind = choice.randrange(4)
    if kind == 0:
        return choice.choice(NUMBERS)
    if kind == 1:
        return copy.deepcopy(choice.choice(OTHERS))
    return choice.choice(STRINGS) if kind == 2 else choice.choice(STRINGS) + choice.choice(STRINGS)[:100]


def nested(choice: Random) -> Any:
    """A value inside many lists and objects."""
    value = any_value(choice)
    for _ in range(choice.choice((3, 40, 200))):
        value = [value] if choice.random() < 0.5 else {choice.choice(STRINGS[:40]): value}
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside a body."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def mutated(example: Any, choice: Random) -> Any:
    """The example of a request with one to three things wrong in it."""
    body = copy.deepcopy(example)
    for _ in range(choice.choice((1, 1, 1, 2, 3))):
        places = list(_places(body))
        if not places or choice.random() < 0.05:
            return nested(choice)
        *path, last = choice.choice(places)
        holder = body
        for key in path:
            holder = holder[key]
        act = choice.randrange(10)
        if act == 0:
            del holder[last]
        elif act == 1 and isinstance(holder, dict):
            holder[choice.choice(STRINGS[:40])] = any_value(choice)
        elif act == 2:
            holder[last] = nested(choice)
        else:
            holder[last] = any_value(choice)
    return body


def body_of(example: Any, choice: Random) -> bytes:
    """The bytes of a request: mostly JSON that is wrong in its contents, sometimes no JSON at all."""
    if choice.random() < 0.1:
        return choice.choice(RAW)
    content = json.dumps(mutated(example, choice), ensure_ascii=choice.random() < 0.5).encode("utf-8", "surrogatepass")
    if choice.random() < 0.05:
        cut = choice.randrange(len(content))
        content = content[:cut] + bytes([choice.randrange(256)]) + content[cut + 1 :]
    return content
