"""How many jobs to claim: one for each free slot, and some ahead of handlers that are fast."""

import asyncio

from reactor.counts import Counts
from reactor.worker.slots import Slots

# How long an urgent job waits at most behind jobs claimed ahead, which other pods can't take: on a fast network, and
# where claims take their time. Then slots stay busy only with what they run until the next claim but one is answered.
_AHEAD_SECONDS = 0.05
_MOST_AHEAD_SECONDS = 0.5
_CLAIMS_AHEAD = 2
_WEIGHT_OF_LATEST = 0.3
_MOST_AHEAD = 500
_WINDOW_SECONDS = 0.1
_SHORTEST_SPAN_SECONDS = 0.02


class ClaimAhead:
    """Measures jobs per second over the last one or two tenths of a second. Slower jobs count as none, and none is
    claimed ahead of them, so that another pod can take it."""

    def __init__(self, slots: Slots, counts: Counts, max_jobs: int | None = None) -> None:
        """`max_jobs`: to claim in all; None: no limit."""
        self._slots = slots
        self._counts = counts
        self._jobs_left = max_jobs
        self.is_limited = False
        """A limit of running jobs is reached: one that waits here for a slot would keep another one from running."""
        self._claim_seconds = 0.0
        """How long a claim takes, on average over the last few."""
        self._before = (0.0, 0)
        self._latest = (0.0, 0)
        self._is_short = False
        self._enough = 1

    @property
    def is_used_up(self) -> bool:
        return self._jobs_left is not None and self._jobs_left <= 0

    def limit(self) -> int:
        """How many jobs to claim now; less than 1: none."""
        limit = self._slots.free + self.ahead()
        return limit if self._jobs_left is None else min(limit, self._jobs_left)

    def ahead(self) -> int:
        """How many more jobs than free slots."""
        if self.is_limited:
            return 0
        since, ended = self._before
        span = max(asyncio.get_running_loop().time() - since, _SHORTEST_SPAN_SECONDS)
        seconds = min(_AHEAD_SECONDS + _CLAIMS_AHEAD * self._claim_seconds, _MOST_AHEAD_SECONDS)
        return min(_MOST_AHEAD, int((self._counts.ended - ended) / span * seconds))

    def is_worthwhile(self) -> bool:
        """Whether to claim now. One free slot is enough where jobs take long; where they are fast, many share a
        claim."""
        ahead = self.ahead()
        self._enough = max(1, ahead // 2) - ahead
        self._is_short = self._slots.free < self._enough
        return not self._is_short

    def is_worthwhile_again(self) -> bool:
        """Whether a claim has become worthwhile since `is_worthwhile` said no: cheap enough for the end of each job."""
        return self._is_short and self._slots.free >= self._enough

    def claimed(self, jobs: int, seconds: float = 0.0) -> None:
        """`seconds`: how long the claim took."""
        self._claim_seconds += (seconds - self._claim_seconds) * _WEIGHT_OF_LATEST
        if self._jobs_left is not None:
            self._jobs_left -= jobs
        now = asyncio.get_running_loop().time()
        if now - self._latest[0] >= _WINDOW_SECONDS:
            self._before, self._latest = self._latest, (now, self._counts.ended)
