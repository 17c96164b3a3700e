"""Whether limits and rates are kept while operators change them.

What the engine promises, by docs/limits.md and decision 21:

- A claim that begins after a change was committed applies it. One that began before may not know it yet.
- Jobs that run already count, and none is stopped. So a limit may be exceeded, but no job starts while it is.
- Jobs that were claimed without a place, before any limit applied to them, count when a claim has given them one, and
  in any case ten seconds after the first claim saw the limit.
- Of a rate, at most `burst + t * rate / period` jobs start within any time t.
"""

import math
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from reactor.database.connection import Connection
from tests.stress.journal import Entry
from tests.stress.model import JobHistory, Model
from tests.stress.report import Report

_SEEN = "select queue, job_type, lane, extract(epoch from seen_at)::float8 as seen_at from reactor.limits"
_EXACT_SECONDS = 10.0
_ROUNDING = 1e-3
_REMEMBERED_SECONDS = 60.0

UNKNOWN_RATE = -1
"""Of a queue whose max_running was changed: its rate stays as it was, whatever that is."""


class Key(NamedTuple):
    """Of a limit, or of what it counts: then `lane` is empty or one lane, never `*`."""

    queue: str
    job_type: str
    lane: str


@dataclass(frozen=True)
class Values:
    """None: no limit."""

    max_running: int | None = None
    rate: int | None = None
    period_seconds: float = 1.0
    burst: int | None = None

    @property
    def starts_at_once(self) -> int:
        assert self.rate is not None
        return self.burst or min(self.rate, max(2, math.ceil(self.rate * 0.1 / self.period_seconds)))

    @property
    def pace(self) -> tuple[int | None, float, int | None]:
        return self.rate, self.period_seconds, self.burst


@dataclass(eq=False, slots=True)
class Change:
    """Times are by the clock of this machine, which is also the database's."""

    values: Values | None
    """None: removed."""
    sent_at: float
    confirmed_at: float = math.inf
    starts: "Starts" = field(default_factory=lambda: Starts())
    """Those that its rate counts. A change of max_running alone continues them."""


@dataclass(eq=False, slots=True)
class Starts:
    """Attempts by what they count for. A lane under `*` begins anew when a limit of its own was removed."""

    of: dict[tuple[Key, Change], tuple[int, float]] = field(default_factory=dict)
    """Their number, and the least of (number before a start - pace * time of the start)."""


_NEVER_LIMITED = Change(None, 0.0, 0.0)


class Limits:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._changes: dict[Key, list[Change]] = {}
        self._exact_at: dict[Key, tuple[float, float]] = {}
        """When each limit becomes exact, and when a snapshot first showed that."""
        self._began_at = time.time()

    # Called by operators

    @asynccontextmanager
    async def changing(self, key: Key, values: Values | None) -> AsyncIterator[None]:
        """Around the whole transaction."""
        changes = self._changes.setdefault(key, [Change(None, 0.0, 0.0)])
        change = Change(values, time.time())
        before = self._possible(key, change.sent_at, change.sent_at)
        if len(before) == 1 and values and before[0].values and before[0].values.pace == values.pace:
            change.starts = before[0].starts
        changes.append(change)
        try:
            yield
        except BaseException:
            changes.remove(change)
            raise
        change.confirmed_at = time.time()
        long_ago = change.confirmed_at - _REMEMBERED_SECONDS
        self._changes[key] = [one for one in changes if not _is_superseded(one, changes, long_ago)]

    # Called by the checker

    async def read(self, connection: Connection) -> None:
        """In the snapshot that is checked next."""
        exact_at, now = {}, time.time()
        for *names, seen_at in await connection.fetch(_SEEN):
            key, at = Key(*names), (math.inf if seen_at is None else seen_at + _EXACT_SECONDS)
            known = self._exact_at.get(key)
            exact_at[key] = known if known is not None and known[0] == at else (at, now)
        self._exact_at = exact_at

    def check(self, model: Model) -> None:
        for claim in model.claims:
            self._check_rates(claim)
            if claim.id in model.jobs:  # else it was pruned since
                model.jobs[claim.id].has_place = self._must_have_place(claim)
        if not self._changes:
            return
        counted: dict[Key, list[JobHistory]] = {}
        for job_id in model.held:
            job = model.jobs[job_id]
            for key in self._keys_of(job.now):
                counted.setdefault(key, []).append(job)
        for key, jobs in counted.items():
            self._check_running(key, jobs)

    def _check_running(self, key: Key, jobs: list[JobHistory]) -> None:
        """All others were held when the last one started: each is in the snapshot, and started before."""
        last = max(jobs, key=lambda job: job.started_at)
        claim = last.claim
        if claim is None:
            return
        began_at, started_at = claim.began_at, last.started_at
        changes = list(self._in_force(key, began_at, started_at))
        allowed = max(_max_running(change) for _, change, _ in changes)
        if len(jobs) <= allowed:
            return
        is_exact = all(began_at > max(self._exact_at.get(source, (math.inf,))) for source, _, _ in changes)
        others = [
            job
            for job in jobs
            if job is not last
            and (
                # Claims that know the same limit take turns.
                (job.claim is not None and self._applied(key, job.claim))
                or (job.claim_seen_at < began_at and (job.has_place or is_exact))
                or job.counted_at < began_at
            )
        ]
        if len(others) >= allowed:
            ages = ", ".join(f"{job.now.id} {started_at - job.started_at:.3f} s before" for job in others[:5])
            self._report.violation(
                "limit",
                f"job {last.now.id} ({last.now.queue}, {last.now.job_type}, lane {last.now.lane}, scope "
                f"{last.now.scope}) started beside {len(others)} others that {tuple(key)} counts, and it allows "
                f"{allowed:g}. They started: {ages}; attempt {claim.attempt_id} of {claim.worker_id}, "
                f"{started_at - began_at:.3f} s after its claim began",
            )

    def _check_rates(self, claim: Entry) -> None:
        """The start is counted from when its claim began, and to when it was written: it happened in between."""
        assert claim.locked_at is not None
        for key in self._keys_of(claim):
            (_, change, lane_change), *others = self._in_force(key, claim.began_at, claim.locked_at)
            values = change.values
            if others or values is None or values.rate in (None, UNKNOWN_RATE):
                continue
            assert values.rate is not None
            per_second = values.rate / values.period_seconds
            began_at, started_at = claim.began_at - self._began_at, claim.locked_at - self._began_at
            before, least = change.starts.of.get((key, lane_change), (0, math.inf))
            least = min(least, before - began_at * per_second)
            change.starts.of[key, lane_change] = (before + 1, least)
            surplus = before + 1 - started_at * per_second - least - values.starts_at_once
            if surplus > _ROUNDING:
                self._report.violation(
                    "rate",
                    f"job {claim.id} ({claim.queue}, {claim.job_type}, lane {claim.lane}) started {surplus:.3f} of a "
                    f"job too early for {values} of {tuple(key)}",
                )

    def _must_have_place(self, claim: Entry) -> bool:
        return any(self._applied(key, claim) for key in self._keys_of(claim))

    def _applied(self, key: Key, claim: Entry) -> bool:
        """Whether max_running was limited for certain when it was claimed."""
        assert claim.locked_at is not None
        changes = self._in_force(key, claim.began_at, claim.locked_at)
        return all(_max_running(change) < math.inf for _, change, _ in changes)

    def _keys_of(self, job: Entry) -> Iterable[Key]:
        """What may have been limited, and counts this job."""
        for queue, job_type in ((job.queue, ""), ("", job.job_type), (job.queue, job.job_type)):
            if Key(queue, job_type, "") in self._changes:
                yield Key(queue, job_type, "")
            if job.lane is not None and (
                Key(queue, job_type, "*") in self._changes or Key(queue, job_type, job.lane) in self._changes
            ):
                yield Key(queue, job_type, job.lane)

    def _in_force(self, key: Key, since: float, until: float) -> Iterable[tuple[Key, Change, Change]]:
        """All that may have been, after the keys of their limits. A lane without a limit of its own has that of `*`;
        then the change that removed its own is the last of the three."""
        for change in self._possible(key, since, until):
            if change.values is not None or not key.lane:
                yield key, change, _NEVER_LIMITED
            else:
                each = Key(key.queue, key.job_type, "*")
                yield from ((each, one, change) for one in self._possible(each, since, until))

    def _possible(self, key: Key, since: float, until: float) -> list[Change]:
        changes = self._changes.get(key)
        if changes is None:
            return [_NEVER_LIMITED]
        return [one for one in changes if one.sent_at <= until and not _is_superseded(one, changes, since)]


def _is_superseded(change: Change, by: list[Change], at: float) -> bool:
    return any(one.sent_at >= change.confirmed_at and one.confirmed_at <= at for one in by if one is not change)


def _max_running(change: Change) -> float:
    is_limited = change.values is not None and change.values.max_running is not None
    return change.values.max_running if is_limited else math.inf  # type: ignore[union-attr,return-value]
