"""The way back from the login to the page that was asked for.

Guards against redirects to other sites: whatever the address of the login says, it leads to a page of this server.
"""

from __future__ import annotations

from urllib.parse import urlencode

LONGEST = 2000
HOME = "/"


def page_of(target: str) -> str:
    """The page to lead to: the one that was asked for if it is one of the dashboard, the overview otherwise."""
    is_plain = len(target) <= LONGEST and target.isascii() and target.isprintable() and "\\" not in target
    is_page = target.startswith("/ui/") or target == "/docs"
    return target if is_plain and is_page else HOME


def login_before(target: str, *, was_refused: bool = False) -> str:
    """The address of the login that leads on to a page."""
    page = page_of(target)
    query = ({"refused": "1"} if was_refused else {}) | ({} if page == HOME else {"next": page})
    return f"/login?{urlencode(query)}" if query else "/login"
