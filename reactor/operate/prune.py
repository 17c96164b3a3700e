"""Removes pipelines that ended long ago, a batch at a time, so that nobody has to wait for it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import RetentionInvalid
from reactor.job import JobState
from reactor.operate.audit import Operator, note
from reactor.schedules.declaration import Schedule, declare

JOB_TYPE = "reactor.prune"
ENDED = (JobState.COMPLETED, JobState.PARTIAL, JobState.FAILED, JobState.CANCELLED)
# In the small hours of UTC, and not on the hour, when everybody else's schedules run.
CALENDAR = {"hour": "17 * * * *", "day": "17 3 * * *", "week": "17 3 * * 0"}
_BATCH = 1000


@dataclass(frozen=True)
class Retention:
    """What is old enough to go; also the payload of the recurring job."""

    days: float
    states: tuple[JobState, ...] = ENDED
    """Pipelines with a job in any other state stay."""
    keep_current: bool = True
    """The newest run of each scope stays."""
    archive: bool = False
    """Copy them to reactor.archive first."""

    def __post_init__(self) -> None:
        if not 0 <= self.days <= 36500:
            raise RetentionInvalid(f"{self.days!r} is no number of days", "Use 0 to 36500.")
        if not self.states or not set(self.states) <= set(ENDED):
            raise RetentionInvalid(f"{list(self.states)} are not all final states", f"Use some of {', '.join(ENDED)}.")

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Retention":
        for name in ("keep_current", "archive"):
            if not isinstance(payload.get(name, True), bool):
                raise RetentionInvalid(f"{name} is {payload[name]!r}", "Use true or false, or leave it out.")
        try:
            return cls(**dict(payload) | {"states": tuple(map(JobState, payload.get("states", ENDED)))})
        except (TypeError, ValueError) as error:
            raise RetentionInvalid(str(error), "It has days, states, keep_current and archive.") from None


@dataclass(frozen=True)
class Pruned:
    pipelines: int = 0
    jobs: int = 0


async def prune(
    connection: Connection, retention: Retention, *, dry_run: bool = False, batch: int = _BATCH
) -> AsyncIterator[Pruned]:
    """Looks through the jobs, `batch` in a transaction, and tells after each what was removed so far."""
    total, last_id = Pruned(), 0
    while last_id is not None:
        record = await connection.fetchrow(
            statements.PRUNE,
            retention.days * 86400.0,
            list(retention.states),
            batch,
            retention.keep_current,
            last_id,
            retention.archive,
            dry_run,
        )
        assert record is not None
        total = Pruned(total.pipelines + record["pipelines"], total.jobs + record["jobs"])
        last_id = record["last_id"]
        yield total


async def prune_by(connection: Connection, retention: Retention, by: Operator) -> AsyncIterator[Pruned]:
    """The same for an operator. The note in the audit is written at the end, also when it was interrupted."""
    total, is_done = Pruned(), False
    try:
        async for total in prune(connection, retention):
            yield total
        is_done = True
    finally:
        with anyio.CancelScope(shield=True):
            await note(connection, by, "prune", None, asdict(retention) | asdict(total) | {"finished": is_done})


async def prune_every(connection: Connection, period: str, retention: Retention, by: Operator) -> None:
    """From now on whichever pod has room does it, by a schedule of the name `reactor.prune`."""
    payload = asdict(retention)
    schedule = Schedule(
        name=JOB_TYPE, job_type=JOB_TYPE, cron=CALENDAR[period], payload=payload, scope=JOB_TYPE, exclusive=True
    )
    async with connection.transaction():
        await declare(connection, [schedule])
        await note(connection, by, "prune every", JOB_TYPE, {"every": period} | payload)
