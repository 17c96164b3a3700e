"""The one retry policy: pauses that double up to a limit, with jitter."""

import asyncio
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    first_seconds: float = 0.05
    longest_seconds: float = 2.0

    def pause_after(self, tries: int) -> float:
        """With jitter, so that many clients of one server don't come back at the same moment."""
        # The exponent is bounded because a float overflows after a thousand tries.
        longest = min(self.longest_seconds, self.first_seconds * 2.0 ** min(tries - 1, 64))
        return longest * random.uniform(0.5, 1.5)


class Backoff:
    """The pauses of one run of failures."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    def next_seconds(self) -> float:
        self._tries += 1
        return self._policy.pause_after(self._tries)

    async def pause(self) -> None:
        await asyncio.sleep(self.next_seconds())
