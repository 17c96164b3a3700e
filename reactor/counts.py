"""What a worker process has done since it started, for logs and metrics."""

from dataclasses import dataclass, field

from reactor.job import JobState


@dataclass
class Counts:
    claims: int = 0
    wasted_claims: int = 0
    claimed: int = 0
    wakes: int = 0
    polls: int = 0
    missed_wakes: int = 0
    """Polls that found what no notification had told of."""
    ended: int = 0
    failed: int = 0
    """Attempts that ended in an error, or failed for good."""
    stale: int = 0
    states: dict[JobState, int] = field(default_factory=dict)

    def count(self, state: JobState) -> None:
        self.states[state] = self.states.get(state, 0) + 1
