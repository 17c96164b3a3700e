"""How long to wait before an attempt that failed is made again."""

import random
from collections.abc import Callable
from datetime import timedelta

from reactor.outcome import in_seconds

Backoff = Callable[[int, BaseException], float | timedelta]
"""Seconds to wait after attempt number n (from 1) raised this."""


def exponential(
    base_seconds: float = 1,
    *,
    factor: float = 2,
    limit_seconds: float = 3600,
    chance: Callable[[], float] = random.random,
) -> Backoff:
    """Each wait `factor` times the one before, shortened by up to half, so that what failed together comes apart."""

    def wait(attempt: int, error: BaseException) -> float:
        # The exponent is bounded because a float overflows after some thousand attempts.
        longest = min(limit_seconds, base_seconds * factor ** min(attempt - 1, 64))
        return longest * (0.5 + 0.5 * chance())

    return wait


def fixed(delay: float | timedelta) -> Backoff:
    """The same wait after each attempt."""
    seconds = in_seconds(delay)
    return lambda attempt, error: seconds
