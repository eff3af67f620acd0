"""A worker of a torture that ends as one that could not reach the store, after it was at work if it is told so."""

from __future__ import annotations

import json
import sys

from holdbeat.torture.processes import CANNOT_START
from holdbeat.torture.witness import note

note("asked", token="1")  # before it has reached the store
if json.loads(sys.argv[1])["works"]:
    note("start", run="1")
sys.exit(CANNOT_START)
