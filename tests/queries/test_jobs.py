"""Jobs are listed in pages, filtered, and found with all of their details."""

from datetime import datetime
from uuid import UUID, uuid4

import pytest

from reactor.database.connection import Connection
from reactor.errors import JobUnknown
from reactor.job import JobState
from reactor.lifecycle.lease import Worker
from reactor.outcome import Errored
from reactor.queries.jobs import Filters, find_job, list_jobs
from reactor.queries.why import why
from tests.support.jobs import claim, insert, run


async def test_jobs_are_listed_newest_first_in_pages(connection: Connection) -> None:
    """J14: the most recent."""
    ids = [await insert(connection) for _ in range(5)]
    first = await list_jobs(connection, limit=2)
    assert [job["id"] for job in first.jobs] == ids[:-3:-1]
    await insert(connection)
    second = await list_jobs(connection, limit=2, before=first.before)
    assert [job["id"] for job in second.jobs] == [ids[2], ids[1]]
    last = await list_jobs(connection, limit=2, before=second.before)
    assert ([job["id"] for job in last.jobs], last.before) == ([ids[0]], None)


async def test_an_exactly_full_page_can_be_the_last(connection: Connection) -> None:
    await insert(connection)
    assert (await list_jobs(connection, limit=1)).before is None


async def test_a_page_scans_a_limited_number_of_jobs_and_returns_where_to_continue(
    connection: Connection, worker: Worker
) -> None:
    ids = [await insert(connection, tags=["rare"] if n in (0, 4) else []) for n in range(8)]
    rare, found = Filters(tag="rare"), []
    page = await list_jobs(connection, rare, max_scanned=3)
    assert (page.jobs, page.before) == ([], ids[5])
    while page.before is not None:
        page = await list_jobs(connection, rare, before=page.before, max_scanned=3)
        found.append([job["id"] for job in page.jobs])
    assert found == [[ids[4]], [ids[0]]]
    # A filter with an index scans only the jobs that match.
    await claim(connection, worker, ids[0])
    running = await list_jobs(connection, Filters(state=JobState.RUNNING), max_scanned=3)
    assert [job["id"] for job in running.jobs] == [ids[0]]


async def test_every_filter_finds_its_jobs(connection: Connection, worker: Worker) -> None:
    """J14: running jobs, and jobs by their attributes."""
    pipeline = uuid4()
    running = await insert(
        connection,
        queue="fast",
        scope="year=2026",
        tags=["a", "b"],
        pipeline_id=pipeline,
        meta='{"region": "eu", "year": 2026, "deep": {"a": 1, "b": 2}}',
    )
    await claim(connection, worker, running)
    other = await insert(connection, job_type="report")
    for filters in (
        Filters(state=JobState.RUNNING),
        Filters(job_type="work"),
        Filters(queue="fast"),
        Filters(scope="year=2026"),
        Filters(tag="b"),
        Filters(pipeline_id=pipeline),
        Filters(meta={"region": "eu", "year": 2026}),
        Filters(meta={"deep": {"b": 2}}),
        Filters(JobState.RUNNING, "work", "fast", "year=2026", "a", pipeline),
    ):
        assert [job["id"] for job in (await list_jobs(connection, filters)).jobs] == [running], filters
    assert [job["id"] for job in (await list_jobs(connection, Filters(state=JobState.PENDING))).jobs] == [other]
    assert (await list_jobs(connection, Filters(tag="c"))).jobs == []
    assert (await list_jobs(connection, Filters(meta={"region": "us"}))).jobs == []


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (Filters(state=JobState.RUNNING), "jobs_pkey"),
        (Filters(state=JobState.WAITING), "jobs_aside"),
        (Filters(state=JobState.FAILED), "jobs_aside"),
        (Filters(pipeline_id=UUID(int=1)), "jobs_pipeline"),
    ],
)
async def test_rare_states_and_pipelines_use_their_index_despite_cached_plans(
    connection: Connection, filters: Filters, index: str
) -> None:
    """The server may cache a generic plan for a statement that it has run often."""
    await connection.execute(
        "insert into reactor.jobs (job_type) select 'work' from generate_series(1, 5000); analyze reactor.jobs"
    )
    scans = "select pg_stat_get_xact_numscans(to_regclass('reactor.' || $1))"
    async with connection.transaction():
        for _ in range(6):
            await list_jobs(connection, Filters(tag="rare"), limit=1000)
        before = await connection.fetchval(scans, index)
        await list_jobs(connection, filters)
        assert await connection.fetchval(scans, index) > before


async def test_a_job_is_found_with_its_steps_attempts_and_dependencies(connection: Connection, worker: Worker) -> None:
    """J14: by id; J4: every detail with its error."""
    first = await insert(connection, payload='{"file": "ä.csv"}')
    await run(connection, worker, first, Errored("out of memory", retry_after_seconds=0))
    await connection.execute(
        "insert into reactor.steps (job_id, name, position, state, error, started_at) values"
        " ($1, 'b', 2, 'failed', 'no data', now()), ($1, 'a', 1, 'completed', null, now())",
        first,
    )
    job = await find_job(connection, first)
    assert job["payload"] == {"file": "ä.csv"}
    assert [(step["name"], step["error"]) for step in job["steps"]] == [("a", None), ("b", "no data")]
    assert isinstance(job["steps"][0]["started_at"], datetime)
    [attempt] = job["earlier_attempts"]
    assert (attempt["outcome"], attempt["error"], attempt["pod"]) == ("error", "out of memory", "pod-1")
    second = await find_job(connection, await insert(connection, after=[first]))
    assert second["dependencies"] == [{"depends_on": first, "needs": "completed", "state": "pending"}]


async def test_a_payload_that_python_can_not_decode_is_returned_as_text(connection: Connection) -> None:
    job_id = await insert(connection, payload='{"n": ' + "9" * 5000 + "}")
    assert "999" in (await find_job(connection, job_id))["payload"]


async def test_an_unknown_job_raises_job_unknown(connection: Connection) -> None:
    with pytest.raises(JobUnknown):
        await find_job(connection, 5)
    with pytest.raises(JobUnknown):
        await why(connection, 5)
