"""reactor.wait returns when a job has finished, in any state."""

import asyncio
import subprocess
import sys

import pytest

import reactor
from reactor import Fail, Finished, Job, Partial, Registry, submit, wait
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import JobUnknown, SettingsInvalid
from reactor.job import JobState
from reactor.pod.in_process import Reactor
from reactor.testing import run_until_idle
from tests.support.until import until


@pytest.mark.parametrize("before", [True, False])
async def test_wait_returns_the_end_of_a_job(
    database: str, connection: Connection, registry: Registry, before: bool
) -> None:
    """Whether it finishes before or after the call."""

    @registry.register("work")
    async def work(job: Job) -> Partial | None:
        match job.payload["ends"]:
            case "partial":
                return Partial({"rows": 2})
            case "failed":
                raise Fail("no such file")
        return None

    ids = [(await submit(connection, "work", {"ends": ends})).id for ends in ("partial", "failed", "completed")]
    if before:
        await run_until_idle(database, registry)
    waiting = [asyncio.create_task(wait(job_id, database, timeout_seconds=20)) for job_id in ids]
    if not before:
        await until(lambda: _are_listening(connection, 3))
        await run_until_idle(database, registry)
    assert await asyncio.gather(*waiting) == [
        Finished(ids[0], JobState.PARTIAL, {"rows": 2}, None),
        Finished(ids[1], JobState.FAILED, None, "no such file"),
        Finished(ids[2], JobState.COMPLETED, None, None),
    ]


async def _are_listening(connection: Connection, count: int) -> bool:
    """Whether this number of waiting sessions have checked their job once."""
    found = await connection.fetch(
        "select from pg_stat_activity where application_name = 'reactor wait' and datname = current_database() "
        "and state = 'idle' and query like '%reactor.jobs%'"
    )
    return len(found) == count


async def test_wait_returns_for_a_cancelled_job(database: str, connection: Connection) -> None:
    job = await submit(connection, "work")
    await connection.fetch(statements.CANCEL, [job.id], "by hand")
    assert await wait(job.id, database) == Finished(job.id, JobState.CANCELLED, None, "by hand")


async def test_wait_times_out(database: str, connection: Connection) -> None:
    job = await submit(connection, "work")
    with pytest.raises(TimeoutError):
        await wait(job.id, database, timeout_seconds=0.05)


async def test_wait_refuses_an_unknown_job(database: str) -> None:
    with pytest.raises(JobUnknown, match="There is no job 12345"):
        await wait(12345, database)


async def test_wait_needs_a_database_url(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsInvalid, match="REACTOR_DATABASE_URL"):
        await wait(1)
    monkeypatch.setenv("REACTOR_DATABASE_URL", database)
    with pytest.raises(JobUnknown):
        await wait(1)


async def test_the_end_of_a_job_wakes_waiters_without_a_poll(
    database: str, connection: Connection, registry: Registry
) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @registry.register("work")
    async def work() -> None:
        started.set()
        await may_end.wait()

    job = await submit(connection, "work")
    async with asyncio.timeout(20), Reactor(database, registry=registry):
        waiting = asyncio.create_task(wait(job.id, database, poll_seconds=3600))
        await until(lambda: _are_listening(connection, 1))
        await started.wait()
        await asyncio.sleep(0.05)  # the claim has notified, and further notifications are suppressed for 20 ms
        may_end.set()
        assert (await waiting).state is JobState.COMPLETED


def test_import_reactor_loads_no_heavy_dependencies() -> None:
    """Services that only submit jobs or register handlers don't load the dependencies of migrations and models."""
    script = (
        "import sys, reactor; reactor.wait, reactor.Finished\n"
        "heavy = [m for m in ('pydantic', 'alembic', 'sqlalchemy', 'starlette', 'click') if m in sys.modules]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert set(reactor.__all__) <= set(dir(reactor))
    assert reactor.Reactor is Reactor
