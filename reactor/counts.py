"""Counters and histograms of one worker process since its start, for logs and metrics."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reactor.job import JobState

DURATION_BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0, 7200.0)
"""In seconds: jobs take from a millisecond to hours."""
BATCH_BOUNDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)
OTHER = "(other)"
"""Stands for all job types after the first `max_types`."""


class Histogram:
    """Counts values in fixed ranges."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the inclusive upper ends of the ranges. One more range holds all larger values."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def merge(self, other: "Histogram") -> None:
        self.merge_counts(other.counts, other.total)

    def merge_counts(self, counts: Sequence[int], total: float) -> None:
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, counts, strict=True)]
        self.total += total

    def summary(self) -> dict[str, Any]:
        return {"counts": self.counts.copy(), "sum": round(self.total, 6)}


@dataclass
class Counts:
    """Counters of one worker process."""

    claims: int = 0
    wasted_claims: int = 0
    claimed: int = 0
    wakes: int = 0
    polls: int = 0
    missed_wakes: int = 0
    """Polls that found jobs without a preceding notification."""
    ended: int = 0
    failed: int = 0
    """Attempts that ended in an error or failed permanently."""
    retries: int = 0
    """Failed attempts after which the job is retried."""
    stale: int = 0
    """Attempts whose job was cancelled or taken over by another attempt."""
    states: dict[JobState, int] = field(default_factory=dict)
    batches: Histogram = field(default_factory=lambda: Histogram(BATCH_BOUNDS))
    """Outcomes written per commit."""
    durations: dict[str, Histogram] = field(default_factory=dict)
    """Durations of attempts by job type."""
    max_types: int = 50
    """Job types whose durations are stored separately."""

    def count(self, state: JobState) -> None:
        self.states[state] = self.states.get(state, 0) + 1

    def record_duration(self, job_type: str, seconds: float) -> None:
        """`Histogram.add` is inlined: this runs for every job, and a call costs as much as the work."""
        histogram = self.durations.get(job_type)
        if histogram is None:
            histogram = self.durations[job_type] = Histogram(DURATION_BOUNDS)
        histogram.counts[bisect_left(DURATION_BOUNDS, seconds)] += 1
        histogram.total += seconds

    def summary(self) -> dict[str, Any]:
        """The counters as JSON of bounded size. Dicts are copied first, since another thread may call this."""
        return {
            "claims": self.claims,
            "wasted_claims": self.wasted_claims,
            "claimed": self.claimed,
            "wakes": self.wakes,
            "polls": self.polls,
            "missed_wakes": self.missed_wakes,
            "ended": self.ended,
            "failed": self.failed,
            "retries": self.retries,
            "stale": self.stale,
            "states": {state.value: n for state, n in self.states.copy().items()},
            "batches": self.batches.summary() | {"bounds": list(BATCH_BOUNDS)},
            "durations": {"bounds": list(DURATION_BOUNDS), "types": self._by_type()},
        }

    def _by_type(self) -> dict[str, dict[str, Any]]:
        """The first types, and the sum of the others: this is written with every heartbeat.

        The first rather than the busiest: if a type could move between the two, its counters would decrease, and rates
        computed from them would be wrong.
        """
        durations = list(self.durations.copy().items())
        if len(durations) <= self.max_types:
            return {job_type: histogram.summary() for job_type, histogram in durations}
        other = Histogram(DURATION_BOUNDS)
        kept: dict[str, Histogram] = {}
        for index, (job_type, histogram) in enumerate(durations):
            if index < self.max_types and job_type != OTHER:
                kept[job_type] = histogram
            else:
                other.merge(histogram)
        return {job_type: histogram.summary() for job_type, histogram in [*kept.items(), (OTHER, other)]}
