"""Where claims start while dead index entries make the beginning slow."""

import json

import pytest

from reactor.database.connection import Connection, connect
from reactor.job import Job
from reactor.lifecycle.claim import claim_once
from reactor.lifecycle.lease import Worker
from reactor.worker.marks import Marks
from tests.support.jobs import insert


async def claimed(connection: Connection, worker: Worker, limit: int, marks: str | None = None) -> list[Job]:
    return (await claim_once(connection, worker, limit, marks)).jobs


@pytest.fixture
async def jobs(connection: Connection, worker: Worker) -> list[Job]:
    for _ in range(10):
        await insert(connection)
    return await claimed(connection, worker, 4)


def test_fast_claims_leave_no_marks(jobs: list[Job]) -> None:
    marks = Marks()
    marks.claimed(jobs, limit=4, used=False, took_seconds=0.001, now=0.001)
    assert marks.next(0.002) is None


def test_a_slow_claim_is_followed_by_claims_from_its_first_job_for_ten_times_as_long(jobs: list[Job]) -> None:
    marks = Marks()
    marks.claimed(jobs, limit=4, used=False, took_seconds=0.1, now=0.1)
    place = {"queue": "default", "job_type": "work", "priority": 0, "id": jobs[0].id - 1}
    assert json.loads(marks.next(1.0) or "") == [place]
    marks.claimed(jobs[2:], limit=2, used=True, took_seconds=0.001, now=1.001)
    assert json.loads(marks.next(1.05) or "") == [place | {"id": jobs[2].id - 1}]
    assert marks.next(1.1) is None


def test_a_claim_that_found_too_few_jobs_is_followed_by_one_from_the_beginning(jobs: list[Job]) -> None:
    marks = Marks()
    marks.claimed(jobs, limit=4, used=False, took_seconds=0.1, now=0.1)
    marks.claimed(jobs, limit=5, used=True, took_seconds=0.1, now=0.3)
    assert marks.next(0.4) is None


async def test_a_claim_starts_at_its_marks(connection: Connection, worker: Worker, jobs: list[Job]) -> None:
    urgent = await insert(connection, priority=-1)
    marks = json.dumps([{"queue": "default", "job_type": "work", "priority": 0, "id": jobs[-1].id + 2}])
    found = await claimed(connection, worker, 2, marks)
    assert [job.id for job in found] == [jobs[-1].id + 3, jobs[-1].id + 4]
    assert [job.id for job in await claimed(connection, worker, 2)] == [urgent, jobs[-1].id + 1]


async def test_claims_with_marks_do_not_read_what_others_have_claimed(
    connection: Connection, worker: Worker, database: str
) -> None:
    """While an old snapshot is open, vacuum can't remove the index entries of claimed jobs."""
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 3000)")
    async with connect(database, name="report") as report, report.transaction(isolation="repeatable_read"):
        await report.fetchval("select 1")
        last = max([job.id for _ in range(10) for job in await claimed(connection, worker, 200)])
        marks = json.dumps([{"queue": "default", "job_type": "work", "priority": 0, "id": last}])
        assert await entries_read(connection, worker, marks) < 100
        assert await entries_read(connection, worker, None) > 2000


async def entries_read(connection: Connection, worker: Worker, marks: str | None) -> int:
    """Entries of the index of ready jobs that a claim of 10 jobs read."""
    read = "select pg_stat_get_xact_tuples_returned('reactor.jobs_ready'::regclass)"
    async with connection.transaction():
        before: int = await connection.fetchval(read)
        assert len(await claimed(connection, worker, 10, marks)) == 10
        after: int = await connection.fetchval(read)
    return after - before
