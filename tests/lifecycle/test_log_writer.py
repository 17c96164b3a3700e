"""Storing what handlers log: fenced, without waiting, and never at the expense of a job's end."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from reactor.counts import Histogram
from reactor.database.connection import Connection, connect
from reactor.database.reconnecting import ReconnectingConnection
from reactor.job import Job, JobState
from reactor.job_log import JobLog, LogOptions
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.lifecycle.writers import Writers
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome
from tests.support.jobs import Row, claim, insert
from tests.support.link import link_for
from tests.support.until import until


@pytest.fixture
def settled() -> dict[int, JobState | None]:
    """The states of the jobs whose ends were reported."""
    return {}


@pytest.fixture
def batches() -> Histogram:
    """How many ends shared each commit."""
    return Histogram((1,))


@pytest.fixture
async def writers(database: str, settled: dict[int, JobState | None], batches: Histogram) -> AsyncIterator[Writers]:
    def on_settled(job_id: int, _attempt_id: UUID, state: JobState | None, _outcome: Outcome) -> None:
        settled[job_id] = state

    connection = ReconnectingConnection(database, "test")
    writers = Writers(connection, on_settled, batches, LogOptions(max_attempts=3))
    running = asyncio.create_task(writers.run())
    yield writers
    running.cancel()
    await asyncio.wait([running])
    await connection.close()


def open_log(writers: Writers, job: Job, *texts: str) -> JobLog:
    job_log = writers.logs.open(job)
    assert job_log
    for text in texts:
        job_log.append("info", None, text, None)
    return job_log


async def stored(connection: Connection, job_id: int) -> list[str]:
    rows = await connection.fetch("select message from reactor.logs where job_id = $1 order by id", job_id)
    return [row["message"] for row in rows]


async def running_job(connection: Connection, worker: Worker) -> Job:
    return await claim(connection, worker, await insert(connection))


def end(writers: Writers, job: Job, job_log: JobLog, outcome: Outcome | None = None) -> None:
    writers.logs.forget(job_log)
    writers.endings.put(Ending(job.id, job.attempt_id, outcome or Completed(), log=job_log))


# While the attempt runs


async def test_lines_are_stored_while_the_attempt_runs(
    connection: Connection, worker: Worker, writers: Writers
) -> None:
    job = await running_job(connection, worker)
    job_log = open_log(writers, job, "a", "b")
    await until(lambda: stored(connection, job.id))
    job_log.append("error", "step 1", "c", '{"n": 1}')
    await until(lambda: len_is(connection, job.id, 3))
    row = await connection.fetchrow("select * from reactor.logs order by id desc limit 1")
    assert row is not None
    assert (row["attempt_id"], row["attempt"], row["number"]) == (job.attempt_id, 1, 3)
    assert (row["level"], row["step"], row["message"], row["fields"]) == ("error", "step 1", "c", '{"n": 1}')
    assert await connection.fetchval(
        "select max(at) <= clock_timestamp() and min(at) > now() - '1 min'::interval from reactor.logs"
    )


async def len_is(connection: Connection, job_id: int, count: int) -> bool:
    return len(await stored(connection, job_id)) == count


async def test_a_stale_attempt_stores_nothing(
    connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None]
) -> None:
    job = await running_job(connection, worker)
    await connection.execute("update reactor.jobs set attempt_id = gen_random_uuid() where id = $1", job.id)
    job_log = open_log(writers, job, "stale")
    other = await running_job(connection, worker)
    open_log(writers, other, "valid")
    await until(lambda: stored(connection, other.id))
    end(writers, job, job_log)
    end(writers, other, open_log(writers, other, "and its last words"))  # in the same commit
    await until(lambda: len(settled) == 2)
    assert settled == {job.id: None, other.id: JobState.COMPLETED}
    assert await stored(connection, job.id) == []
    assert await stored(connection, other.id) == ["valid", "and its last words"]


async def test_a_locked_job_holds_up_no_other_ones_lines(
    database: str, connection: Connection, worker: Worker, writers: Writers
) -> None:
    """And its own are stored when the lock is free."""
    locked, free = [await running_job(connection, worker) for _ in range(2)]
    async with connect(database, name="neighbour") as neighbour, neighbour.transaction():
        await neighbour.execute("select from reactor.jobs where id = $1 for update", locked.id)
        open_log(writers, locked, "of the locked one")
        open_log(writers, free, "of the free one")
        await until(lambda: stored(connection, free.id))
        assert await stored(connection, locked.id) == []
    await until(lambda: stored(connection, locked.id))


async def test_lines_are_stored_once_when_an_answer_is_lost(
    database: str, connection: Connection, worker: Worker, settled: dict[int, JobState | None]
) -> None:
    job = await running_job(connection, worker)
    async with link_for(database) as (link, url):
        through = ReconnectingConnection(url, "writers", prepares=True)
        writers = Writers(through, lambda job_id, _a, state, _o: settled.update({job_id: state}), Histogram((1,)))
        running = asyncio.create_task(writers.run())
        job_log = open_log(writers, job, "before")
        await until(lambda: len_is(connection, job.id, 1))
        link.hold("down")
        job_log.append("info", None, "during", None)
        await until(lambda: len_is(connection, job.id, 2))
        link.refuse()
        gone = "select count(*) = 0 from pg_stat_activity where application_name = 'writers'"
        await until(lambda: connection.fetchval(gone))
        link.heal()
        job_log.append("info", None, "after", None)
        end(writers, job, job_log, Failed("no"))
        await until(lambda: job.id in settled)
        running.cancel()
        await asyncio.wait([running])
        await through.close()
    assert settled == {job.id: JobState.FAILED}
    assert await stored(connection, job.id) == ["before", "during", "after"]


# With the end


@pytest.mark.parametrize(
    "outcome", [Completed({"n": 1}), Failed("no"), Errored("again"), Errored("later", 60)], ids=str
)
async def test_the_last_lines_are_committed_with_the_end(
    connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None], outcome: Outcome
) -> None:
    job, silent = [await running_job(connection, worker) for _ in range(2)]
    job_log = open_log(writers, job, "last words")
    end(writers, job, job_log, outcome)
    writers.endings.put(Ending(silent.id, silent.attempt_id, Completed()))
    await until(lambda: len(settled) == 2)
    assert await stored(connection, job.id) == ["last words"]
    assert await stored(connection, silent.id) == []


async def test_many_ends_with_lines_are_written_in_portions(
    connection: Connection,
    worker: Worker,
    writers: Writers,
    settled: dict[int, JobState | None],
    batches: Histogram,
) -> None:
    jobs = [await running_job(connection, worker) for _ in range(5)]
    for job in jobs:
        end(writers, job, open_log(writers, job, *map(str, range(600))))
    await until(lambda: len(settled) == 5)
    assert batches.count == 5, "two of them would have more lines than one statement may have"
    for job in jobs:
        assert await stored(connection, job.id) == [str(number) for number in range(600)]


@pytest.mark.parametrize(
    "breakage",
    [
        "alter table reactor.logs rename to elsewhere",
        "alter table reactor.logs add check (false) not valid",
        "create function public.refuse() returns trigger language plpgsql as "
        "'begin raise exception using errcode = ''disk_full''; end'; "
        "create trigger refuse before insert on reactor.logs execute function public.refuse()",
        "drop function reactor.insert_logs",
    ],
    ids=["gone", "refused", "full", "without_the_function"],
)
async def test_an_end_is_written_although_its_log_can_not_be(
    connection: Connection,
    worker: Worker,
    writers: Writers,
    settled: dict[int, JobState | None],
    row: Row,
    breakage: str,
) -> None:
    await connection.execute(breakage)
    jobs = [await running_job(connection, worker) for _ in range(3)]
    for job in jobs[:2]:
        end(writers, job, open_log(writers, job, "lost"), Failed("why"))
    end(writers, jobs[2], open_log(writers, jobs[2], "lost"))
    await until(lambda: len(settled) == 3)
    assert [(await row(job.id))["state"] for job in jobs] == ["failed", "failed", "completed"]
    assert (await row(jobs[0].id))["error"] == "why"


async def test_a_locked_table_of_logs_delays_no_end(
    database: str, connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None]
) -> None:
    async with connect(database, name="neighbour") as neighbour, neighbour.transaction():
        await neighbour.execute("lock table reactor.logs in share mode")
        jobs = [await running_job(connection, worker) for _ in range(3)]
        still_running = await running_job(connection, worker)
        open_log(writers, still_running, "later")
        for job in jobs:
            end(writers, job, open_log(writers, job, "lost"))
        await until(lambda: len(settled) == 3)
    await until(lambda: stored(connection, still_running.id))


async def test_the_lines_of_an_end_that_was_rolled_back_are_written_with_the_next_one(
    connection: Connection, worker: Worker, writers: Writers
) -> None:
    job = await running_job(connection, worker)
    job_log = open_log(writers, job, "kept")
    ending = Ending(job.id, job.attempt_id, Completed(), log=job_log)
    with pytest.raises(ZeroDivisionError):
        async with connection.transaction():
            assert await settle(connection, [ending])
            raise ZeroDivisionError
    job_log.put_back()
    assert await settle(connection, [ending])
    assert await stored(connection, job.id) == ["kept"]


# What is kept


async def test_a_job_keeps_the_lines_of_its_newest_attempts(
    connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None]
) -> None:
    """Also if attempts are not charged, so that there may be any number of them."""
    job_id, other = await insert(connection), await insert(connection)
    other_job = await claim(connection, worker, other)
    end(writers, other_job, open_log(writers, other_job, "of another job"))
    await until(lambda: other in settled)
    for number in range(1, 6):
        settled.clear()
        job = await claim(connection, worker, job_id)
        end(writers, job, open_log(writers, job, f"{number}a", f"{number}b"), Errored("again"))
        await until(lambda: job_id in settled)
        await connection.execute("update reactor.jobs set max_attempts = 100, state = 'pending' where id = $1", job_id)
    assert await stored(connection, job_id) == ["3a", "3b", "4a", "4b", "5a", "5b"]
    assert await stored(connection, other) == ["of another job"]


@pytest.mark.parametrize("removal", ["delete from reactor.jobs where id = 1", "truncate reactor.jobs cascade"])
async def test_the_lines_of_a_job_are_deleted_with_it(connection: Connection, worker: Worker, removal: str) -> None:
    for _ in range(2):
        await insert(connection)
    await connection.execute(
        "insert into reactor.logs (job_id, at, attempt_id, attempt, number, level, message) "
        "select n, now(), gen_random_uuid(), 1, 1, 'info', 'x' from generate_series(1, 2) n"
    )
    await connection.execute(removal)
    left = [row["job_id"] for row in await connection.fetch("select job_id from reactor.logs")]
    assert left == ([2] if removal.startswith("delete") else [])
