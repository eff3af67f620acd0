"""`python -m holdbeat` is the `holdbeat` command."""

from __future__ import annotations

from holdbeat.wiring import main

if __name__ == "__main__":
    main()
