"""What the simulated workers did with each attempt, and whether the database agrees."""

from dataclasses import dataclass, field
from uuid import UUID

from reactor.lifecycle.lease import Worker
from tests.stress.journal import Entry
from tests.stress.report import Report

_KEPT = 200_000


@dataclass(slots=True)
class Sent:
    """What a worker sent for one attempt. Each may have taken effect; at most one has."""

    outcomes: set[str] = field(default_factory=set)
    is_settled: bool = False
    """The database has confirmed one of them."""


class Attempts:
    def __init__(self, report: Report) -> None:
        self.workers: dict[UUID, Worker] = {}
        """All that were ever registered."""
        self.dead: set[UUID] = set()
        """Those whose lease was ended, or who have retired."""
        self.shut_down: set[UUID] = set()
        """Those of them that have released all that they held, also what they did not know of."""
        self.crashed: set[UUID] = set()
        """Those of them whose pod has released all that they held, and handed some of it over."""
        self.asked_for: set[tuple[int, UUID | None]] = set()
        """Jobs that a worker tried to claim by their id: it need not be their turn."""
        self.recovered: set[int] = set()
        """Jobs that an operator asked to recover."""
        self._report = report
        self._sent: dict[UUID, Sent] = {}
        self._claimed: set[UUID] = set()

    # Called by the workers

    def sends(self, attempt_id: UUID, outcome: str) -> None:
        """Called before the statement is sent."""
        self._sent.setdefault(attempt_id, Sent()).outcomes.add(outcome)
        if len(self._sent) > _KEPT:
            del self._sent[next(iter(self._sent))]

    def settled(self, job_id: int, attempt_id: UUID) -> None:
        """The database says that the job was still the attempt's."""
        sent = self._sent[attempt_id]
        if sent.is_settled:
            self._report.violation("fence", f"attempt {attempt_id} of job {job_id} was settled twice: {sent.outcomes}")
        sent.is_settled = True

    # Called by the model

    def was_asked_for(self, claim: Entry) -> bool:
        return (claim.id, claim.worker_id) in self.asked_for

    def check_claim(self, new: Entry) -> None:
        assert new.attempt_id is not None
        assert new.worker_id is not None
        if new.attempt_id in self._claimed:
            self._report.violation("fence", f"attempt {new.attempt_id} of job {new.id} is not new")
        if new.started_once:
            self._report.violation("once", f"job {new.id} was claimed, and must not start again: {new}")
        self._claimed.add(new.attempt_id)
        worker = self.workers.get(new.worker_id)
        if worker is None:
            self._report.violation("claim", f"job {new.id} was claimed for an unknown worker: {new}")
        elif new.job_type not in worker.job_types or (
            # `claim_job` takes it from any queue.
            worker.queues and new.queue not in worker.queues and not self.was_asked_for(new)
        ):
            self._report.violation("claim", f"job {new.id} was claimed by a worker that does not serve it: {new}")

    def check_change(self, old: Entry, new: Entry) -> None:
        """Of a job that was running."""
        if new.state == "running":
            if new.attempt_id != old.attempt_id:
                self._check_hand_over(old, new)
            return
        if new.state == "cancelled":
            if new.attempt_id is not None or new.worker_id != old.worker_id or new.attempts != old.attempts:
                self._report.violation("cancel", f"job {new.id} was cancelled as {new}, from {old}")
            return
        if new.state in ("completed", "partial") and new.written_by != str(old.attempt_id):
            self._report.violation("fence", f"job {new.id}: the result of {new.written_by} ended {old.attempt_id}")
        assert old.attempt_id is not None
        outcomes = set(self._sent[old.attempt_id].outcomes) if old.attempt_id in self._sent else set()
        if old.worker_id in self.shut_down:
            outcomes |= {"released", "unstarted"}
        if old.worker_id in self.crashed:
            outcomes |= {"crashed", "unstarted"}
        if old.worker_id in self.dead:
            outcomes.add("lease_lost")
            if old.id in self.recovered:
                outcomes.add("recovered")
        if not any(_is_end_of(outcome, old, new) for outcome in outcomes):
            self._report.violation("ending", f"job {new.id} ended as {new}, from {old}; sent: {sorted(outcomes)}")

    def _check_hand_over(self, old: Entry, new: Entry) -> None:
        """Of an attempt whose process died, to a worker of its own."""
        assert old.attempt_id is not None
        assert new.attempt_id is not None
        outcomes = self._sent[old.attempt_id].outcomes if old.attempt_id in self._sent else set()
        charged = 1 if "handed over, charged" in outcomes else 0
        if old.started_once:
            self._report.violation("once", f"job {new.id} was handed over, and must not start again: {old} {new}")
        if (
            not outcomes & {"handed over", "handed over, charged"}
            or new.attempt_id in self._claimed
            or new.attempts != old.attempts + charged
            or new.worker_id not in self.workers
        ):
            self._report.violation("fence", f"running job {new.id} got another attempt: {old} {new}")
        self._claimed.add(new.attempt_id)


def _is_end_of(outcome: str, old: Entry, new: Entry) -> bool:
    """The table of sql/schema/functions/settle.sql."""
    assert old.quota is not None
    retried = "pending" if old.attempts < old.quota else "failed"
    charged, refunded = (retried, old.attempts), ("pending", old.attempts - 1)
    ends: list[tuple[str, int]]
    match outcome:
        case "completed" | "partial" | "failed":
            ends = [(outcome, old.attempts)]
        case "error" | "culprit" | "lease_lost":
            ends = [charged]
        case "abandoned":
            ends = [charged, ("failed", old.attempts)]  # without a delay
        case "snoozed" | "unstarted":
            ends = [refunded]
        case "released" | "crashed":
            ends = [charged] if old.started_once else [refunded, charged]  # charged after ten of them
        case "recovered":
            ends = [("pending", 0)]
        case _:
            ends = []
    held = old.worker_id if outcome == "abandoned" else None
    attempt = None if new.state == "pending" else old.attempt_id
    return (new.state, new.attempts) in ends and new.worker_id == held and new.attempt_id == attempt
