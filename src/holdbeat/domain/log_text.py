"""Text of others on its way into a log: nothing in it may end the line, move the cursor or turn the direction.

Guards against forged log lines: whatever a name or an error contains, it stays inside its own line.
"""

from __future__ import annotations

import unicodedata
from functools import cache

_NAMED = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x5C: "\\\\"}


def _escape(code: int) -> str:
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _NAMED.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


@cache
def _dangerous() -> dict[int, str]:
    """Control, format (direction marks among them) and surrogate characters and the separators of lines; the
    backslash, so that nobody can pretend to have been escaped. Made when first needed: it takes a while."""
    return {
        code: _escape(code)
        for code in (*range(0x10000), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE0080))
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    } | {0x5C: "\\\\"}


def one_line(text: str) -> str:
    """The text with everything escaped that could make more of it than one line of plain characters."""
    return text if text.isascii() and text.isprintable() and "\\" not in text else text.translate(_dangerous())
