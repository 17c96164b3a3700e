"""How often a value fell into which of a few fixed ranges: all that is kept of thousands of measurements a second."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any


class Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: the upper ends of the ranges, each part of its own; whatever is larger has one more."""
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
