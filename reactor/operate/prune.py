"""Removes old pipelines in small batches, so that it does not block other transactions."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import RetentionInvalid
from reactor.job import JobState
from reactor.operate.audit import Operator, write_audit
from reactor.schedules.declaration import Schedule, declare

JOB_TYPE = "reactor.prune"
FINAL_STATES = (JobState.COMPLETED, JobState.PARTIAL, JobState.FAILED, JobState.CANCELLED)
# At night in UTC, and not on the hour, when most other schedules run.
CRON_OF_PERIOD = {"hour": "17 * * * *", "day": "17 3 * * *", "week": "17 3 * * 0"}
_BATCH_SIZE = 1000


@dataclass(frozen=True)
class Retention:
    """Which pipelines to remove. It is also the payload of the recurring job."""

    days: float
    states: tuple[JobState, ...] = FINAL_STATES
    """Pipelines with a job in any other state are kept."""
    keep_current: bool = True
    """Keep the newest run of each scope."""
    archive: bool = False
    """Copy removed jobs to reactor.archive."""

    def __post_init__(self) -> None:
        if not 0 <= self.days <= 36500:
            raise RetentionInvalid(f"days is {self.days!r}", "Use 0 to 36500.")
        if not self.states or not set(self.states) <= set(FINAL_STATES):
            raise RetentionInvalid(f"states is {list(self.states)}", f"Use some of {', '.join(FINAL_STATES)}.")

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Retention":
        for name in ("keep_current", "archive"):
            if not isinstance(payload.get(name, True), bool):
                raise RetentionInvalid(f"{name} is {payload[name]!r}", "Use true or false, or leave it out.")
        try:
            return cls(**dict(payload) | {"states": tuple(map(JobState, payload.get("states", FINAL_STATES)))})
        except (TypeError, ValueError) as error:
            raise RetentionInvalid(str(error), "The fields are days, states, keep_current and archive.") from None


@dataclass(frozen=True)
class Pruned:
    pipelines: int = 0
    jobs: int = 0


async def prune(
    connection: Connection, retention: Retention, *, dry_run: bool = False, batch: int = _BATCH_SIZE
) -> AsyncIterator[Pruned]:
    """Scans all jobs and removes at most about `batch` per transaction. Yields the total removed after each."""
    total, place = Pruned(), "{}"
    while place is not None:
        record = await connection.fetchrow(
            statements.PRUNE,
            retention.days * 86400.0,
            list(retention.states),
            batch,
            retention.keep_current,
            place,
            retention.archive,
            dry_run,
        )
        assert record is not None
        total = Pruned(total.pipelines + record["pipelines"], total.jobs + record["jobs"])
        place = record["place"]
        yield total


async def prune_and_audit(connection: Connection, retention: Retention, by: Operator) -> AsyncIterator[Pruned]:
    """Prunes for an operator. The audit entry is written at the end, even if it is interrupted."""
    total, is_done = Pruned(), False
    try:
        async for total in prune(connection, retention):
            yield total
        is_done = True
    finally:
        with anyio.CancelScope(shield=True):
            await write_audit(connection, by, "prune", None, asdict(retention) | asdict(total) | {"finished": is_done})


async def schedule_pruning(connection: Connection, period: str, retention: Retention, by: Operator) -> None:
    """Creates or updates the schedule `reactor.prune`, by which the pods prune regularly."""
    payload = asdict(retention)
    schedule = Schedule(
        name=JOB_TYPE, job_type=JOB_TYPE, cron=CRON_OF_PERIOD[period], payload=payload, scope=JOB_TYPE, exclusive=True
    )
    async with connection.transaction(isolation="read_committed"):
        await declare(connection, [schedule])
        await write_audit(connection, by, "prune every", JOB_TYPE, {"every": period} | payload)
