"""Becomes a shell job's command: asks to die with its parent, then replaces itself by the command.

Run as a script without site-packages and without an environment of Python's own, so that it starts quickly.
If the command cannot be started, it says so on a pipe that a successful start closes.
"""

from __future__ import annotations

import json
import os
import signal
import sys


def main(directory: str, parent: str, error_fd: str, cwd: str, *argv: str) -> None:
    sys.path.append(directory)  # last, for some of our modules are named like the standard library's
    from die_with_parent import die_with, forget_inherited_signals  # type: ignore[import-not-found]

    die_with(int(parent))
    forget_inherited_signals()
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.set_inheritable(int(error_fd), False)
    try:
        if cwd:
            os.chdir(cwd)
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        where = f"directory {cwd}" if cwd and getattr(error, "filename", None) == cwd else f"command {argv[0]}"
        reason = getattr(error, "strerror", None) or str(error)
        os.write(int(error_fd), json.dumps(f"The {where} cannot be used: {reason}.").encode())
        os._exit(127)


if __name__ == "__main__":
    main(*sys.argv[1:])
