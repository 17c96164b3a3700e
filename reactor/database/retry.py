"""The one retry policy: pauses that double up to a limit, with jitter."""

import asyncio
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    first_seconds: float = 0.05
    longest_seconds: float = 2.0


class Backoff:
    """The pauses of one run of failures."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._next = policy.first_seconds

    def reset(self) -> None:
        self._next = self._policy.first_seconds

    def next_seconds(self) -> float:
        """The next pause. With jitter, so that many clients of one server don't come back at the same moment."""
        pause = self._next
        self._next = min(self._policy.longest_seconds, pause * 2)
        return pause * random.uniform(0.5, 1.5)

    async def pause(self) -> None:
        await asyncio.sleep(self.next_seconds())
