"""Looking at jobs: the newest, one in full, and a sentence for every reason that keeps one from running."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from reactor.database.connection import Connection
from reactor.duration import format_duration, parse_duration
from reactor.errors import JobUnknown
from reactor.job import Job, JobState
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker, register_worker, retire_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored, Failed, Partial
from reactor.queries.jobs import Filters, find_job, list_jobs
from reactor.queries.queues import find_restrictions
from reactor.queries.why import Code, Reason, why

Insert = Callable[..., Awaitable[int]]


@pytest.fixture
def insert(connection: Connection) -> Insert:
    """Inserts a job of the type `work` and returns its id."""

    async def insert(after: list[int] | None = None, **columns: Any) -> int:
        columns = {"job_type": "work"} | columns
        names, places = ", ".join(columns), ", ".join(f"${n}" for n in range(1, len(columns) + 1))
        async with connection.transaction():
            statement = f"insert into reactor.jobs ({names}) values ({places}) returning id"
            identity: int = await connection.fetchval(statement, *columns.values())
            await connection.executemany(
                "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)",
                [(identity, other) for other in after or []],
            )
        return identity

    return insert


async def run(connection: Connection, worker: Worker, job_id: int) -> Job:
    job = await claim_one(connection, worker, job_id)
    assert job
    return job


async def end(connection: Connection, worker: Worker, job_id: int, outcome: Any) -> None:
    job = await run(connection, worker, job_id)
    assert await settle(connection, [Ending(job.id, job.attempt_id, outcome)])


async def reasons(connection: Connection, job_id: int) -> dict[Code, Reason]:
    return {reason.code: reason for reason in (await why(connection, job_id)).reasons}


async def only_reason(connection: Connection, job_id: int, code: Code) -> Reason:
    [reason] = (await why(connection, job_id)).reasons
    assert reason.code == code, reason
    return reason


async def test_jobs_are_listed_newest_first_in_pages(connection: Connection, insert: Insert) -> None:
    """J14: the most recent."""
    ids = [await insert() for _ in range(5)]
    first = await list_jobs(connection, limit=2)
    assert [job["id"] for job in first.jobs] == ids[:-3:-1]
    await insert()
    second = await list_jobs(connection, limit=2, before=first.before)
    assert [job["id"] for job in second.jobs] == [ids[2], ids[1]]
    last = await list_jobs(connection, limit=2, before=second.before)
    assert ([job["id"] for job in last.jobs], last.before) == ([ids[0]], None)


async def test_an_exactly_full_page_can_be_the_last(connection: Connection, insert: Insert) -> None:
    await insert()
    assert (await list_jobs(connection, limit=1)).before is None


async def test_a_page_scans_a_limited_number_of_jobs_and_returns_where_to_continue(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    ids = [await insert(tags=["rare"] if n in (0, 4) else []) for n in range(8)]
    rare, found = Filters(tag="rare"), []
    page = await list_jobs(connection, rare, max_scanned=3)
    assert (page.jobs, page.before) == ([], ids[5])
    while page.before is not None:
        page = await list_jobs(connection, rare, before=page.before, max_scanned=3)
        found.append([job["id"] for job in page.jobs])
    assert found == [[ids[4]], [ids[0]]]
    # A filter with an index scans only the jobs that match.
    await run(connection, worker, ids[0])
    running = await list_jobs(connection, Filters(state=JobState.RUNNING), max_scanned=3)
    assert [job["id"] for job in running.jobs] == [ids[0]]


async def test_every_filter_finds_its_jobs(connection: Connection, worker: Worker, insert: Insert) -> None:
    """J14: running jobs, and jobs by their attributes."""
    pipeline = uuid4()
    running = await insert(queue="fast", scope="year=2026", tags=["a", "b"], pipeline_id=pipeline)
    await run(connection, worker, running)
    other = await insert(job_type="report")
    for filters in (
        Filters(state=JobState.RUNNING),
        Filters(job_type="work"),
        Filters(queue="fast"),
        Filters(scope="year=2026"),
        Filters(tag="b"),
        Filters(pipeline_id=pipeline),
        Filters(JobState.RUNNING, "work", "fast", "year=2026", "a", pipeline),
    ):
        assert [job["id"] for job in (await list_jobs(connection, filters)).jobs] == [running], filters
    assert [job["id"] for job in (await list_jobs(connection, Filters(state=JobState.PENDING))).jobs] == [other]
    assert (await list_jobs(connection, Filters(tag="c"))).jobs == []


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (Filters(state=JobState.RUNNING), "jobs_held"),
        (Filters(state=JobState.WAITING), "jobs_waiting"),
        (Filters(state=JobState.FAILED), "jobs_not_completed"),
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


async def test_a_job_is_found_with_its_steps_attempts_and_dependencies(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    """J14: by id; J4: every detail with its error."""
    first = await insert(payload='{"file": "ä.csv"}')
    await end(connection, worker, first, Errored("out of memory", retry_after_seconds=0))
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
    second = await find_job(connection, await insert(after=[first]))
    assert second["dependencies"] == [{"depends_on": first, "needs": "completed", "state": "pending"}]


async def test_a_payload_that_python_can_not_decode_is_returned_as_text(connection: Connection, insert: Insert) -> None:
    job_id = await insert(payload='{"n": ' + "9" * 5000 + "}")
    assert "999" in (await find_job(connection, job_id))["payload"]


async def test_an_unknown_job_raises_job_unknown(connection: Connection) -> None:
    with pytest.raises(JobUnknown):
        await find_job(connection, 5)
    with pytest.raises(JobUnknown):
        await why(connection, 5)


async def test_restrictions_list_paused_and_limited_queues(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    assert (await find_restrictions(connection)).queues == []
    await connection.execute("insert into reactor.queues values ('a', true, null), ('b', false, 3), ('c', false, null)")
    await run(connection, worker, await insert(queue="b"))
    restrictions = await find_restrictions(connection)
    assert not restrictions.draining
    assert restrictions.queues == [
        {"queue": "a", "paused": True, "max_running": None, "running": 0},
        {"queue": "b", "paused": False, "max_running": 3, "running": 1},
    ]


async def test_why_a_ready_job_waits_for_a_free_slot(connection: Connection, worker: Worker, insert: Insert) -> None:
    await run(connection, worker, await insert())
    reason = await only_reason(connection, await insert(), Code.DUE)
    assert reason.facts == {"live_pods": 1, "held": 1, "capacity": 10}
    assert "1 of 10 slots" in reason.message


async def test_why_a_job_is_not_due(connection: Connection, worker: Worker, insert: Insert) -> None:
    later = await connection.fetchval("select clock_timestamp() + interval '2 hours 30 minutes'")
    reason = await only_reason(connection, await insert(run_after=later), Code.NOT_DUE)
    assert "in 2 h 30 min" in reason.message or "in 2 h 29 min" in reason.message
    assert 8900 < reason.facts["in_seconds"] <= 9000
    never = await connection.fetchval(
        "insert into reactor.jobs (job_type, run_after) values ('work', 'infinity') returning id"
    )
    assert (await only_reason(connection, never, Code.NOT_DUE)).facts == {"in_seconds": None}


async def test_why_names_ten_dependencies_of_a_waiting_job(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    needed = [await insert() for _ in range(12)]
    await run(connection, worker, needed[1])
    reason = await only_reason(connection, await insert(after=needed), Code.DEPENDENCIES)
    assert f"{needed[0]} (pending), {needed[1]} (running)" in reason.message
    assert reason.message.endswith("and 2 more.")
    assert (len(reason.facts["jobs"]), reason.facts["count"]) == (10, 12)
    await end(connection, worker, needed[0], Completed())
    one = await insert(after=[needed[0], needed[1]])
    assert (await only_reason(connection, one, Code.DEPENDENCIES)).message == f"Waiting for job {needed[1]} (running)."


async def test_why_a_job_waits_although_its_dependencies_are_met(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    job_id = await insert()
    await connection.execute("update reactor.jobs set state = 'waiting' where id = $1", job_id)
    await only_reason(connection, job_id, Code.WAITS_FOR_NOTHING)


async def test_why_names_the_job_and_pod_that_hold_the_scope(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    holder, job_id = await insert(scope="s"), await insert(scope="s")
    await run(connection, worker, holder)
    reason = await only_reason(connection, job_id, Code.SCOPE_BUSY)
    assert f"job {holder} has been running on pod-1" in reason.message
    assert (reason.facts["job_id"], reason.facts["pod"]) == (holder, "pod-1")


async def test_why_a_cancelled_job_still_holds_the_scope(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    """F12: also after a cancel, until the handler has stopped or its worker is dead."""
    holder, job_id = await insert(scope="s"), await insert(scope="s")
    await run(connection, worker, holder)
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'x')", holder)
    assert (
        "was cancelled, and its handler on pod-1 has not stopped yet"
        in (await only_reason(connection, job_id, Code.SCOPE_BUSY)).message
    )
    assert Code.HANDLER_NOT_STOPPED in await reasons(connection, holder)
    await connection.execute("select from reactor.retry(array[$1::bigint])", holder)
    assert "its own earlier run was cancelled" in (await only_reason(connection, holder, Code.SCOPE_BUSY)).message
    await retire_worker(connection, worker.id)
    assert "is dead" in (await reasons(connection, job_id))[Code.SCOPE_BUSY].message


async def test_why_a_job_waits_for_its_turn_in_a_free_scope(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    ahead, job_id = await insert(scope="s"), await insert(scope="s")
    await connection.execute("update reactor.jobs set parked = true where id = $1", job_id)
    reason = await only_reason(connection, job_id, Code.SCOPE_TURN)
    assert reason.facts == {"scope": "s", "ahead_id": ahead}
    await connection.execute("delete from reactor.jobs where id = $1", ahead)
    assert (await only_reason(connection, job_id, Code.SCOPE_TURN)).facts["ahead_id"] is None


async def test_why_a_queue_is_paused_or_at_its_limit(connection: Connection, worker: Worker, insert: Insert) -> None:
    await run(connection, worker, await insert(queue="q"))
    job_id = await insert(queue="q")
    await connection.execute("insert into reactor.queues (name, max_running) values ('q', 1)")
    reason = await only_reason(connection, job_id, Code.QUEUE_FULL)
    assert "1 of 1" in reason.message
    await connection.execute("update reactor.queues set paused = true, max_running = 2")
    assert "reactor resume q" in (await only_reason(connection, job_id, Code.QUEUE_PAUSED)).message


async def test_why_nothing_runs_while_draining(connection: Connection, worker: Worker, insert: Insert) -> None:
    await connection.execute("update reactor.settings set draining = true")
    await only_reason(connection, await insert(), Code.DRAINING)


async def test_why_no_pod_has_the_handler(connection: Connection, worker: Worker, insert: Insert) -> None:
    reason = await only_reason(connection, await insert(job_type="report"), Code.NO_HANDLER)
    assert reason.message == "The only live pod has no handler for report."
    assert reason.facts["live_pods"] == 1
    await retire_worker(connection, worker.id)
    assert "No pod is alive" in (await only_reason(connection, await insert(), Code.NO_HANDLER)).message


async def test_why_ignores_pods_without_a_heartbeat(connection: Connection, insert: Insert) -> None:
    await register_worker(connection, Worker("silent", {"work": None}), 0)
    assert (await only_reason(connection, await insert(), Code.NO_HANDLER)).facts["live_pods"] == 0


async def test_why_no_pod_works_on_the_queue(connection: Connection, insert: Insert) -> None:
    await register_worker(connection, Worker("a", {"work": None}, queues=("fast",)), 600)
    assert (
        "No live pod works on the queue slow."
        in (await only_reason(connection, await insert(queue="slow"), Code.NO_POD_FOR_QUEUE)).message
    )
    await register_worker(connection, Worker("b", {"report": None}, queues=("slow",)), 600)
    reason = await only_reason(connection, await insert(queue="slow"), Code.NO_POD_FOR_QUEUE)
    assert "handles work and works on the queue slow: 1 of 2 have the handler." in reason.message
    await register_worker(connection, Worker("b", {"work": None}, queues=("slow",)), 600)
    reason = await only_reason(connection, await insert(queue="slow"), Code.DUE)
    assert reason.facts["live_pods"] == 1


async def test_why_a_job_without_a_type_never_runs(connection: Connection, worker: Worker, insert: Insert) -> None:
    """D14: rows without job_type are ignored."""
    await only_reason(connection, await insert(job_type=None), Code.NO_JOB_TYPE)


async def test_why_attempts_are_used_up(connection: Connection, worker: Worker, insert: Insert) -> None:
    job_id = await insert()
    await end(connection, worker, job_id, Errored("no", retry_after_seconds=0))
    await connection.execute("update reactor.jobs set max_attempts = 1 where id = $1", job_id)
    reason = await only_reason(connection, job_id, Code.ATTEMPTS_USED_UP)
    assert reason.facts == {"attempts": 1, "quota": 1}
    assert await claim_one(connection, worker, job_id) is None


async def test_why_shows_the_pod_of_a_running_job_and_whether_its_worker_is_alive(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    job_id = await insert()
    await run(connection, worker, job_id)
    reason = await only_reason(connection, job_id, Code.RUNNING)
    assert "Running on pod-1, attempt 1 of 3" in reason.message
    assert 500 < reason.facts["lease_seconds"] <= 600
    await retire_worker(connection, worker.id)
    assert f"reactor recover {job_id}" in (await only_reason(connection, job_id, Code.WORKER_DEAD)).message


async def test_why_shows_how_a_job_ended(connection: Connection, worker: Worker, insert: Insert) -> None:
    for outcome, code, words in (
        (Completed({}, "all 7 days"), Code.COMPLETED, "all 7 days"),
        (Partial({}, "2 of 7 days"), Code.PARTIAL, "in part"),
        (Failed("no such file"), Code.FAILED, "no such file"),
    ):
        job_id = await insert()
        await end(connection, worker, job_id, outcome)
        assert words in (await only_reason(connection, job_id, code)).message


async def test_why_names_the_job_that_caused_a_cancellation(
    connection: Connection, worker: Worker, insert: Insert
) -> None:
    first = await insert()
    second = await insert(after=[first])
    await end(connection, worker, first, Failed("no"))
    reason = await only_reason(connection, second, Code.CANCELLED)
    assert (reason.facts["broken_by"], reason.facts["broken_by_state"]) == (first, "failed")
    assert f"reactor retry {first}" in reason.message


async def test_why_lists_all_applicable_reasons(connection: Connection, insert: Insert) -> None:
    await connection.execute("update reactor.settings set draining = true")
    await connection.execute("insert into reactor.queues (name, paused) values ('default', true)")
    waiting = await insert(after=[await insert()])
    assert set(await reasons(connection, waiting)) == {
        Code.DEPENDENCIES,
        Code.DRAINING,
        Code.QUEUE_PAUSED,
        Code.NO_HANDLER,
    }


async def test_a_viewer_may_run_all_queries(connection: Connection, worker: Worker, insert: Insert) -> None:
    job_id = await insert(scope="s")
    await connection.execute("set role reactor_viewer")
    await only_reason(connection, job_id, Code.DUE)
    assert (await find_job(connection, job_id))["state"] == "pending"
    assert len((await list_jobs(connection)).jobs) == 1
    assert not (await find_restrictions(connection)).draining
    await connection.execute("reset role")


def test_every_reason_is_tested_and_documented() -> None:
    here = Path(__file__)
    tests, page = here.read_text(), (here.parents[2] / "docs" / "operating.md").read_text()
    for code in Code:
        assert f"Code.{code.name}" in tests
        assert f"`{code}`" in page


def test_durations_are_parsed_and_formatted() -> None:
    assert [parse_duration(text) for text in ("90", "45s", "5m", "1h30m", "1h 30m", "2D", "0.5")] == [
        90,
        45,
        300,
        5400,
        5400,
        172800,
        0.5,
    ]
    for text in ("", "soon", "5x", "1h30", "-5", "1e9", "99999d"):
        with pytest.raises(ValueError, match="not a duration"):
            parse_duration(text)
    assert [format_duration(seconds) for seconds in (0.25, -1, 59, 60, 3600, 3661, 90061, 86400)] == [
        "0.2 s",
        "0.0 s",
        "59 s",
        "1 min",
        "1 h",
        "1 h 1 min",
        "1 d 1 h",
        "1 d",
    ]
