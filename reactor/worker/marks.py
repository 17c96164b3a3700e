"""Where the next claim starts in each queue and type, while walking from the beginning takes too long.

A session that holds an old snapshot open keeps vacuum from removing the index entries of claimed jobs, and a claim
walks past all of them. In between two claims from the beginning, claims then start at the first job that the last one
found. They don't see jobs that became ready before that place: a retry, an urgent job, a late commit. The next claim
from the beginning does, after ten times its duration at most.
"""

import json
from collections.abc import Sequence

from reactor.job import Job

_SLOW_SECONDS = 0.02
_SHARE = 10
"""Claims from the beginning take at most about a tenth of the time."""


class Marks:
    def __init__(self) -> None:
        self._places: dict[tuple[str, str], tuple[int, int]] = {}
        self._from_beginning_at = 0.0

    def next(self, now: float) -> str | None:
        """For the next claim. None: it starts at the beginning."""
        if not self._places or now >= self._from_beginning_at:
            return None
        return json.dumps(
            [
                {"queue": queue, "job_type": job_type, "priority": priority, "id": job_id - 1}
                for (queue, job_type), (priority, job_id) in self._places.items()
            ]
        )

    def claimed(self, jobs: Sequence[Job], *, limit: int, used: bool, took_seconds: float, now: float) -> None:
        """`used`: whether the claim started at marks. `took_seconds`: how long the server worked on it."""
        if len(jobs) < limit or (not used and took_seconds < _SLOW_SECONDS):
            self._places = {}
            return
        if not used:
            self._places = {}
            self._from_beginning_at = now + _SHARE * took_seconds
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for job in jobs:
            kind, place = (job.queue, job.job_type), (job.priority, job.id)
            found[kind] = min(found.get(kind, place), place)
        self._places |= found
