"""What the journal says about each job, checked change by change: states, attempts, fence, dependencies, order."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from tests.stress.attempts import Attempts
from tests.stress.journal import Edge, Entry
from tests.stress.report import Report

UNFINISHED = frozenset({"waiting", "pending", "running"})
TERMINAL = frozenset({"completed", "partial", "failed", "cancelled"})

_PATHS = {
    "waiting": {"waiting", "pending", "cancelled"},
    "pending": {"pending", "running", "cancelled"},
    "running": {"running", "pending", "completed", "partial", "failed", "cancelled"},
    # `waiting`: a retry. Its transaction makes the job pending next, if nothing is in the way.
    "completed": {"completed", "waiting"},
    "partial": {"partial", "waiting"},
    "failed": {"failed", "waiting"},
    "cancelled": {"cancelled", "waiting"},
}
_MET = {"completed": frozenset({"completed"}), "finished": TERMINAL}

_KEPT = 100_000


@dataclass(slots=True)
class Need:
    """A dependency as it was inserted. The table loses it when the other job is pruned; this does not."""

    depends_on: int
    met_by: frozenset[str]
    since: int = 0
    """The other job must reach such a state after this entry: both started over together."""


@dataclass(slots=True)
class JobHistory:
    now: Entry
    inserted_xid: int
    ready_at: float
    """Since when it has been pending and due, parked or not: when a snapshot first showed it."""
    reached: dict[str, int] = field(default_factory=dict)
    """The latest entry at which it reached each terminal state."""
    needs: list[Need] = field(default_factory=list)
    dependants: set[int] = field(default_factory=set)
    claim: Entry | None = None
    """Its latest claim."""
    claim_seen_at: float = math.inf
    """When a snapshot first showed that claim."""
    has_place: bool = False
    """The claim had to give it a place in a limit."""
    counted_at: float = math.inf
    """When a snapshot first showed that it has a place."""

    @property
    def started_at(self) -> float:
        return (self.claim and self.claim.locked_at) or 0.0


class Model:
    def __init__(self, report: Report, attempts: Attempts) -> None:
        self.jobs: dict[int, JobHistory] = {}
        self.unfinished: set[int] = set()
        self.finished: set[int] = set()
        self.held: set[int] = set()
        """Jobs that workers hold."""
        self.claims: list[Entry] = []
        """Those that the last snapshot showed first, in their order."""
        self.applied = 0
        """The number of changes so far."""
        self.latest: deque[Entry] = deque(maxlen=20)
        self._report = report
        self._attempts = attempts
        self._pruned: dict[int, dict[str, int]] = {}
        """The terminal states that pruned jobs had reached: their dependants may live on."""
        self._of_scope: dict[str, set[int]] = {}
        self._suspects: list[tuple[Entry, JobHistory, Entry, float]] = []
        """Claims, each with an older job that was ready, as it was then, and for how many seconds."""

    def apply(self, entries: Iterable[Entry], edges: Iterable[Edge], seen_at: float) -> list[Entry]:
        """Everything that one snapshot shows and the one before did not. Returns the jobs that became ready.

        `seen_at`: after the snapshot was taken."""
        self._confirm_order()
        ready: dict[int, Entry] = {}
        new_edges: dict[int, list[Need]] = {}
        for edge in edges:
            new_edges.setdefault(edge.job_id, []).append(Need(edge.depends_on, _MET[edge.needs]))
        claimed: list[tuple[JobHistory, list[Need]]] = []
        self.claims = []
        for entry in entries:
            self.applied += 1
            self.latest.append(entry)
            if entry.op != "D" and entry.state == "pending" and entry.is_due and not entry.parked:
                ready.setdefault(entry.id, entry)
            else:
                ready.pop(entry.id, None)
            if entry.op == "D":
                self._remove(entry)
            elif entry.op == "I":
                self._add(entry, new_edges.get(entry.id, []), seen_at)
            else:
                job = self.jobs.get(entry.id)
                if job is None:
                    self._report.violation("journal", f"job {entry.id} changed before it was inserted")
                    continue
                if self._change(job, entry, seen_at):
                    job.claim, job.claim_seen_at, job.counted_at = entry, seen_at, math.inf
                    # As they are now: later in the list, the job may have ended, and started over.
                    claimed.append((job, [replace(need) for need in job.needs]))
                    self.claims.append(entry)
                if entry.counted:
                    job.counted_at = min(job.counted_at, seen_at)
        for job_id, needs in new_edges.items():
            for need in needs:
                if need.depends_on in self.jobs:
                    self.jobs[need.depends_on].dependants.add(job_id)
        # After all entries: the end of the other job has been committed before, but may be written later in the list.
        for job, needs in claimed:
            self._check_needs(job, needs)
        return list(ready.values())

    def _add(self, entry: Entry, needs: list[Need], seen_at: float) -> None:
        if entry.state != "pending":
            self._report.violation("path", f"job {entry.id} was inserted as {entry.state}")
        self.jobs[entry.id] = JobHistory(entry, entry.xid, seen_at, needs=needs)
        self.unfinished.add(entry.id)
        if entry.scope is not None:
            self._of_scope.setdefault(entry.scope, set()).add(entry.id)

    def _remove(self, entry: Entry) -> None:
        job = self.jobs.pop(entry.id, None)
        if job is None:
            return
        if job.now.state in UNFINISHED or job.now.worker_id is not None:
            self._report.violation("prune", f"job {entry.id} was removed while {job.now.state}")
        for ids in (self.unfinished, self.finished, self.held):
            ids.discard(entry.id)
        self._pruned[entry.id] = job.reached
        if len(self._pruned) > _KEPT:
            del self._pruned[next(iter(self._pruned))]
        if job.now.scope is not None:
            self._of_scope[job.now.scope].discard(entry.id)

    def _change(self, job: JobHistory, new: Entry, seen_at: float) -> bool:
        """Returns whether it was claimed."""
        old, job.now = job.now, new
        if new.state not in _PATHS[old.state] and not (
            # Connecting its dependencies, at the commit of the transaction that inserted it.
            old.state == "pending" and new.state == "waiting" and new.xid == job.inserted_xid
        ):
            self._report.violation("path", f"job {new.id}: {old.state} -> {new.state}, {old} {new}")
        (self.held.discard if new.worker_id is None else self.held.add)(new.id)
        is_claim = old.state == "pending" and new.state == "running"
        if is_claim:
            self._check_claim(old, new)
            self._check_order(new)
        elif old.state == "running":
            self._attempts.check_change(old, new)
        elif new.state in TERMINAL and old.state in TERMINAL and new.attempt_id != old.attempt_id:
            self._report.violation("fence", f"job {new.id} had ended, and got another attempt: {old} {new}")
        elif old.state in TERMINAL and new.state == "waiting":
            self._start_over(job, new)
        if new.state in TERMINAL and old.state not in TERMINAL:
            job.reached[new.state] = new.seq
            self.unfinished.discard(new.id)
            self.finished.add(new.id)
        elif old.state in TERMINAL and new.state not in TERMINAL:
            self.finished.discard(new.id)
            self.unfinished.add(new.id)
        was_ready = old.state == "pending" and old.is_due
        if new.state == "pending" and new.is_due and not was_ready:
            job.ready_at = seen_at
        return is_claim

    def _check_claim(self, old: Entry, new: Entry) -> None:
        if new.attempts != old.attempts + 1 or new.quota is None or new.attempts > new.quota:
            self._report.violation("attempts", f"claim of job {new.id}: {old.attempts} -> {new.attempts}/{new.quota}")
        if new.worker_id is None or new.attempt_id is None or new.parked or not new.is_due:
            self._report.violation("claim", f"job {new.id} is running as {new}")
        self._attempts.check_claim(new)

    def _start_over(self, job: JobHistory, new: Entry) -> None:
        if new.attempts != 0 or new.attempt_id is not None:
            self._report.violation("attempts", f"job {new.id} starts over as {new}")
        for need in job.needs:
            if self._starts_over(need.depends_on, new):
                need.since = new.seq
        # The other job of an edge may have been written first.
        for other_id in job.dependants:
            if self._starts_over(other_id, new):
                for need in self.jobs[other_id].needs:
                    if need.depends_on == new.id:
                        need.since = new.seq

    def _starts_over(self, job_id: int, with_entry: Entry) -> bool:
        other = self.jobs.get(job_id)
        return other is not None and other.now.xid == with_entry.xid and other.now.state in UNFINISHED

    def _check_needs(self, job: JobHistory, needs: list[Need]) -> None:
        for need in needs:
            other = self.jobs.get(need.depends_on)
            reached = other.reached if other is not None else self._pruned.get(need.depends_on, {})
            if not any(reached.get(state, -1) > need.since for state in need.met_by):
                state = other.now.state if other is not None else "pruned"
                self._report.violation(
                    "unmet need", f"job {job.now.id} ran, job {need.depends_on} is {state}, reached {reached}"
                )

    def _check_order(self, claim: Entry) -> None:
        """Of a scope, a queue and a type, equal in priority, the oldest is first."""
        if claim.scope is None or self._attempts.was_asked_for(claim):
            return
        for other_id in self._of_scope[claim.scope]:
            if other_id >= claim.id:
                continue
            other = self.jobs[other_id]
            now = other.now
            if (
                now.state == "pending"
                and now.is_due
                and (now.queue, now.job_type, now.priority) == (claim.queue, claim.job_type, claim.priority)
                and other.ready_at < claim.began_at
                # Transactions that connect or restart dependants lock its row, and claims pass it by.
                and not other.dependants
            ):
                self._suspects.append((claim, other, now, claim.began_at - other.ready_at))
                return

    def _confirm_order(self) -> None:
        """A job that is being cancelled is locked, and claims pass it by."""
        for claim, other, then, ready_seconds in self._suspects:
            if other.now.state != "cancelled":
                self._report.violation(
                    "order",
                    f"job {claim.id} of scope {claim.scope} ran before job {then.id}, which was ready for "
                    f"{ready_seconds:.1f} s, and {'parked' if then.parked else 'not parked'} for "
                    f"{claim.at - then.at:.3f} s: {claim} {then}",
                )
        self._suspects.clear()

    def held_by_dead(self, dead: frozenset[UUID]) -> list[int]:
        return [job_id for job_id, job in self.jobs.items() if job.now.worker_id in dead]
