"""Releases what an exited worker held, and ends its lease."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar
from uuid import UUID

import asyncpg

from reactor.concurrency import first_of
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.lease import retire_worker
from reactor.lifecycle.release import held, release, release_unstarted
from reactor.lifecycle.settle import settle
from reactor.log import get_logger
from reactor.outcome import Ending, Failed

log = get_logger(__name__)
Answer = TypeVar("Answer")


class Recovery:
    """Waits for a database that is away, but not past the deadline of a shutdown: then the lease has to expire."""

    def __init__(self, url: str, pod: str, deadline: Callable[[], Awaitable[None]]) -> None:
        """`deadline`: returns when there is no time left."""
        self.is_incomplete = False
        """Something was not written in time: jobs stay claimed until their worker's lease expires."""
        self._url = url
        self._pod = pod
        self._deadline = deadline

    async def retry(self, operation: Callable[[Connection], Awaitable[Answer]]) -> Answer | None:
        """None: it was refused, or there was no time left."""
        connection = ReconnectingConnection(self._url, f"reactor recovery {self._pod}")
        work = asyncio.create_task(connection.retry(operation))
        try:
            await first_of(work, self._deadline())
            if not work.done():
                log.error("jobs not released in time; other pods release them when the lease expires")
                self.is_incomplete = True
                return None
            answer, _ = work.result()
            return answer
        except asyncpg.PostgresError as error:
            log.error("recovery failed", error=str(error), sqlstate=error.sqlstate)
            return None
        finally:
            work.cancel()
            await connection.close()


async def after_crash(
    connection: Connection, worker_id: UUID, started: Collection[UUID], causes: Mapping[UUID, str], why: str
) -> dict[int, UUID]:
    """Releases started jobs without charging an attempt: one of them may have killed the process, but which?

    `causes`: attempts that are known to have ended the process, and how. Those are charged. Returns the suspects, which
    ran in an earlier crash too. They stay held, to be run again in quarantine.
    """
    unstarted, running = await _held_by(connection, worker_id, started)
    await release_unstarted(connection, unstarted)
    for cause in set(causes.values()):
        culprits = {job_id: attempt_id for job_id, attempt_id in running.items() if causes.get(attempt_id) == cause}
        await release(connection, culprits, outcome="culprit", why=cause)
    others = {job_id: attempt_id for job_id, attempt_id in running.items() if attempt_id not in causes}
    crashed_before = {record["id"] for record in await connection.fetch(statements.CRASHED_BEFORE, list(others))}
    suspects = {job_id: others.pop(job_id) for job_id in crashed_before}
    await release(connection, others, outcome="crashed", why=why)
    log.warning(
        "jobs of a dead worker process released",
        unstarted=len(unstarted),
        started=sorted(others),
        charged=sorted(running.keys() - others.keys() - suspects.keys()),
        quarantined=sorted(suspects),
    )
    return suspects


async def _held_by(
    connection: Connection, worker_id: UUID, started: Collection[UUID]
) -> tuple[dict[int, UUID], dict[int, UUID]]:
    """The jobs that the worker holds: unstarted and started ones."""
    unstarted: dict[int, UUID] = {}
    running: dict[int, UUID] = {}
    for job_id, attempt_id in (await held(connection, worker_id)).items():
        (running if attempt_id in started else unstarted)[job_id] = attempt_id
    return unstarted, running


async def after_shutdown(
    connection: Connection, worker_id: UUID, started: Collection[UUID], *, fail: bool, counts: str | None = None
) -> int:
    """Releases started jobs without charging an attempt, or fails them. Returns how many.

    `counts`: all that the worker has done, as JSON, to be stored with it.
    """
    unstarted, interrupted = await _held_by(connection, worker_id, started)
    await release_unstarted(connection, unstarted)
    if fail:
        failure = Failed("Worker received SIGTERM: the pod was shut down while this job ran.")
        await settle(connection, [Ending(job_id, attempt_id, failure) for job_id, attempt_id in interrupted.items()])
    else:
        await release(connection, interrupted, outcome="released", why="The pod was shut down while it ran.")
    await retire_worker(connection, worker_id, counts)
    if interrupted:
        log.warning(
            "jobs interrupted by the shutdown", jobs=sorted(interrupted), became="failed" if fail else "pending"
        )
    return len(interrupted)
