"""Bounds of the fields of requests: the schemas publish them, and the checks of the domain enforce them."""

PRIORITY_MAX = 100
HEAVIEST = 1000
"""How many slots a job may take at most."""
ATTEMPTS_MAX = 1000
LONGEST_NAME = 200
LONGEST_REASON = 500
LONGEST_GIVEN_TITLE = 500
LONGEST_KEY = 255
LONGEST_URL = 2048
LONGEST_DESCRIPTION = 5000
YEAR_S = 31_536_000
LONGEST_DELAY_S = 10 * YEAR_S
LONGEST_SLOT_WAIT_S = 86_400
LONGEST_SLOT_TTL_S = 86_400
SLOTS_MAX = 1_000_000
"""Of a limit, also as starts of a rate."""

SHORTEST_INTERVAL_S = 1
"""Work more often than once a second belongs into one long job, not into a schedule."""
LONGEST_INTERVAL_S = YEAR_S
LONGEST_JITTER_S = 3600
LONGEST_GRACE_S = 86_400
MOST_CAUGHT_UP = 10_000
MOST_PREVIEWED = 1000
LONGEST_CALL_S = 1800
"""Of an endpoint's call, and of the job that makes it."""
LARGEST_RESPONSE_KB = 10_240
