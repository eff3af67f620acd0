"""How Python itself is set up in a process that is Holdbeat's own. An embedding program is left as it is.

- A handler that computes in Python holds the interpreter for the switch interval at a time. With Python's 5 ms the
  store's threads wait for their turn far longer than they work: 200 µs let no-op jobs drain at twice the rate of 500 µs
  beside such a handler.
- The collector looks at everything alive after every 700 new objects. A cycle of the dispatcher makes thousands that
  live for milliseconds and do not refer to each other; looking less often is worth some 5 % of a worker's time.
"""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.0002
NEW_OBJECTS = 50_000


def tune() -> None:
    """Sets up the interpreter of a serving, working or measuring process."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 100)
