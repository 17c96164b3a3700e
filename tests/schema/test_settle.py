"""Settling: every outcome in one statement, each written once, by the attempt that holds the job."""

import asyncio
from typing import Any, cast
from uuid import uuid4

import pytest

from reactor.client.submit import NewJob, submit_many
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.job import Job, JobState
from reactor.lifecycle.claim import claim, claim_one
from reactor.lifecycle.lease import Worker, heartbeat, register_worker, retire_worker
from reactor.lifecycle.release import Release, held, release
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Partial, Snoozed
from tests.support.jobs import Row
from tests.support.until import until


async def running(connection: Connection, worker: Worker, **options: Any) -> Job:
    [submitted] = await submit_many(connection, [NewJob(job_type="work", **options)])
    job = await claim_one(connection, worker, submitted.id, 2)
    assert job
    return job


async def attempts(connection: Connection, job_id: int) -> list[tuple[int, str, str]]:
    rows = await connection.fetch(
        "select number, outcome, error from reactor.attempts where job_id = $1 order by ended_at", job_id
    )
    return [tuple(r) for r in rows]


@pytest.mark.parametrize(
    ("outcome", "state", "result", "error", "message"),
    [
        (Completed({"rows": 3}, "done"), "completed", '{"rows": 3}', None, "done"),
        (Partial({"rows": 1}, "two failed"), "partial", '{"rows": 1}', None, "two failed"),
        (Failed("no such file"), "failed", None, "no such file", None),
    ],
)
async def test_a_final_outcome_is_written_with_its_time(
    connection: Connection,
    worker: Worker,
    outcome: Outcome,
    state: str,
    result: str,
    error: str,
    message: str,
    row: Row,
) -> None:
    """D6, D7: the attempt_id stays, to distinguish a lost reply from a lost job."""
    job = await running(connection, worker)
    assert await settle(connection, [Ending(job.id, job.attempt_id, outcome)]) == {job.id: JobState(state)}
    after = await row(job.id)
    assert (after["state"], after["result"], after["error"], after["status_message"]) == (state, result, error, message)
    assert (after["attempt_id"], after["worker_id"]) == (job.attempt_id, None)
    assert after["finished_at"] is not None
    assert await attempts(connection, job.id) == []


async def test_a_job_is_retried_after_errors_until_its_attempts_are_used_up(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """P6"""
    job = await running(connection, worker)
    ending = Ending(job.id, job.attempt_id, Errored("boom", retry_after_seconds=30))
    assert await settle(connection, [ending]) == {job.id: JobState.PENDING}
    after = await row(job.id)
    assert (after["attempt_id"], after["worker_id"], after["error"], after["attempts"]) == (None, None, "boom", 1)
    assert await connection.fetchval("select run_after - clock_timestamp() > '25 s' from reactor.jobs")
    await connection.execute("update reactor.jobs set run_after = null")
    assert (again := await claim_one(connection, worker, job.id, 2))
    ending = Ending(job.id, again.attempt_id, Errored("boom again"))
    assert await settle(connection, [ending]) == {job.id: JobState.FAILED}
    assert (await row(job.id))["error"] == "boom again"
    assert await attempts(connection, job.id) == [(1, "error", "boom")]


async def test_a_snooze_is_not_charged(connection: Connection, worker: Worker, row: Row) -> None:
    job = await running(connection, worker)
    await settle(connection, [Ending(job.id, job.attempt_id, Snoozed(60, "waiting for the file"))])
    after = await row(job.id)
    assert (after["state"], after["attempts"], after["status_message"]) == ("pending", 0, "waiting for the file")
    assert after["run_after"] is not None


async def test_one_statement_writes_many_outcomes_and_skips_stale_ones(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """F6, F7: stale attempts are missing in the result."""
    jobs = [await running(connection, worker) for _ in range(4)]
    outcomes: list[Outcome] = [Completed(), Failed("x"), Errored("y"), Completed()]
    endings = [Ending(j.id, j.attempt_id, o) for j, o in zip(jobs, outcomes, strict=True)]
    endings[3] = endings[3]._replace(attempt_id=uuid4())
    written = await settle(connection, list(reversed(endings)))
    assert written == {
        jobs[0].id: JobState.COMPLETED,
        jobs[1].id: JobState.FAILED,
        jobs[2].id: JobState.PENDING,
    }
    assert (await row(jobs[3].id))["state"] == "running"
    assert await settle(connection, endings) == {}
    assert await settle(connection, []) == {}


@pytest.mark.parametrize(
    "outcome",
    [
        Completed({"x": float("nan")}),
        Completed({"x": "\0"}),
        Completed({"x": "\ud800"}),
        Completed({"x": object()}),
        Failed("a\0b \ud800"),
        Errored("x", float("inf")),
        Errored("x", float("nan")),
        Snoozed(1e30),
    ],
)
async def test_an_outcome_that_can_not_be_stored_affects_no_other(
    connection: Connection, worker: Worker, outcome: Outcome
) -> None:
    odd, plain = [await running(connection, worker) for _ in range(2)]
    endings = [
        Ending(odd.id, odd.attempt_id, outcome),
        Ending(plain.id, plain.attempt_id, Completed({"x": "\U0001f600"})),
    ]
    written = await settle(connection, endings)
    assert written[plain.id] is JobState.COMPLETED
    assert written[odd.id] is (JobState.PENDING if isinstance(outcome, Errored | Snoozed) else JobState.FAILED)


async def test_a_text_that_only_resembles_nul_is_kept(connection: Connection, worker: Worker, row: Row) -> None:
    job = await running(connection, worker)
    await settle(connection, [Ending(job.id, job.attempt_id, Completed({"x": "\\u0000 \\\\u0000"}))])
    assert (await row(job.id))["state"] == "completed"


async def test_an_attempt_is_settled_once_by_two_concurrent_writers(
    connection: Connection, worker: Worker, database: str
) -> None:
    job = await running(connection, worker)
    async with connect(database, name="other") as other:
        answers = await asyncio.gather(
            settle(connection, [Ending(job.id, job.attempt_id, Completed())]),
            settle(other, [Ending(job.id, job.attempt_id, Failed("late"))]),
        )
    assert sorted(len(answer) for answer in answers) == [0, 1]


async def test_free_releases_of_a_job_are_limited(connection: Connection, worker: Worker, row: Row) -> None:
    job = first = await running(connection, worker)
    for _ in range(10):
        held = {job.id: job.attempt_id}
        assert await release(connection, held, outcome="released", why="SIGTERM") == {job.id: JobState.PENDING}
        after = await row(job.id)
        assert (after["attempts"], after["started_at"], after["attempt_id"]) == (0, first.started_at, None)
        again = await claim_one(connection, worker, job.id, 2)
        assert again
        job = again
    states: list[JobState] = []
    for _ in range(2):
        written = await release(connection, {job.id: job.attempt_id}, outcome="released", why="SIGTERM")
        states += written.values()
        if again := await claim_one(connection, worker, job.id, 2):
            job = again
    assert states == [JobState.PENDING, JobState.FAILED]
    assert [number for number, _, _ in await attempts(connection, job.id)] == [1] * 11


async def test_a_crash_is_charged_and_the_last_one_fails_the_job(
    connection: Connection, worker: Worker, row: Row
) -> None:
    job = await running(connection, worker)
    await release(connection, {job.id: job.attempt_id}, outcome="culprit", why="killed by signal 9")
    assert (again := await claim_one(connection, worker, job.id, 2))
    written = await release(connection, {job.id: again.attempt_id}, outcome="culprit", why="killed by signal 9")
    assert written == {job.id: JobState.FAILED}
    after = await row(job.id)
    assert (after["error"], after["attempts"], after["attempt_id"]) == ("killed by signal 9", 2, again.attempt_id)


async def test_a_cancel_takes_the_fence_and_keeps_the_scope_until_the_handler_stopped(
    connection: Connection, worker: Worker, database: str, row: Row
) -> None:
    """F6, F12"""
    received: list[str] = []
    async with connect(database, name="listener") as listener:

        def receive(*notification: Any) -> None:
            received.append(notification[-1])

        await listener.add_listener("reactor_cancel", receive)
        job = await running(connection, worker, scope="table")
        waiting = (await submit_many(connection, [NewJob(job_type="work", scope="table")]))[0].id
        [cancelled] = await connection.fetch(statements.CANCEL, [job.id], "by the operator")
        assert (cancelled["id"], cancelled["was"]) == (job.id, "running")
        await until(lambda: received)
        await listener.remove_listener("reactor_cancel", receive)
    assert str(job.attempt_id) in received[0]
    assert await settle(connection, [Ending(job.id, job.attempt_id, Completed())]) == {}
    after = await row(job.id)
    assert (after["state"], after["error"], after["attempt_id"]) == ("cancelled", "by the operator", None)
    assert await claim(connection, worker, 10) == []
    assert await attempts(connection, job.id) == [(1, "preempted", "by the operator")]
    assert await connection.fetch(statements.RELEASE_STOPPED, uuid4(), [job.id]) == []
    assert len(await connection.fetch(statements.RELEASE_STOPPED, worker.id, [job.id])) == 1
    assert [job.id for job in await claim(connection, worker, 10)] == [waiting]


async def test_a_pending_job_can_be_cancelled_and_a_finished_one_can_not(
    connection: Connection, worker: Worker, row: Row
) -> None:
    done = await running(connection, worker)
    await settle(connection, [Ending(done.id, done.attempt_id, Completed())])
    [pending] = await submit_many(connection, [NewJob(job_type="work")])
    cancelled = await connection.fetch(statements.CANCEL, [done.id, pending.id, 999], "no")
    assert [r["id"] for r in cancelled] == [pending.id]
    assert (await row(done.id))["state"] == "completed"


async def test_the_jobs_of_a_dead_worker_are_released_and_those_of_a_live_one_are_not(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """P8, F6: pending while attempts are left, else failed; a cancelled job only frees its scope."""
    dead = Worker("pod-2", {"work": None})
    await register_worker(connection, dead, 600)
    mine = await running(connection, worker)
    first = await running(connection, dead)
    last = await running(connection, dead, max_attempts=1)
    cancelled = await running(connection, dead, scope="s")
    await connection.fetch(statements.CANCEL, [cancelled.id], "by hand")
    assert await connection.fetch(statements.SWEEP, 100) == []
    await connection.execute("update reactor.workers set lease_until = clock_timestamp() where id = $1", dead.id)
    swept = {r["id"]: r["state"] for r in await connection.fetch(statements.SWEEP, 100)}
    assert swept == {first.id: "pending", last.id: "failed", cancelled.id: "cancelled"}
    assert (await row(mine.id))["state"] == "running"
    assert (await row(last.id))["error"] == "The pod pod-2 died or sent no heartbeat during attempt 1."
    assert (await row(cancelled.id))["error"] == "by hand"
    assert await connection.fetchval("select count(*) from reactor.jobs where worker_id = $1", dead.id) == 0
    assert await settle(connection, [Ending(first.id, first.attempt_id, Completed())]) == {}
    assert await connection.fetchval("select ended_at is not null from reactor.workers where id = $1", dead.id)


async def test_a_job_of_an_unknown_worker_is_swept(connection: Connection, worker: Worker) -> None:
    job = await running(connection, worker)
    await connection.execute("delete from reactor.workers")
    assert [r["id"] for r in await connection.fetch(statements.SWEEP, 100)] == [job.id]


async def test_either_the_sweeper_or_the_settling_worker_ends_an_attempt(
    connection: Connection, worker: Worker, database: str
) -> None:
    async with connect(database, name="sweeper") as sweeper:
        for _ in range(50):
            doomed = Worker("pod", {"work": None})
            await register_worker(connection, doomed, 600)
            job = await running(connection, doomed)
            await retire_worker(connection, doomed.id)
            swept, settled = await asyncio.gather(
                sweeper.fetch(statements.SWEEP, 100), settle(connection, [Ending(job.id, job.attempt_id, Completed())])
            )
            assert bool(swept) != bool(settled)


async def test_a_heartbeat_that_has_not_committed_yet_keeps_its_worker_alive(
    connection: Connection, worker: Worker, database: str
) -> None:
    """A slow commit (a stalled disk, a synchronous standby) outlasts the lease. The worker considers it renewed."""
    job = await running(connection, worker)
    async with connect(database, name="worker") as own, own.transaction():
        assert await heartbeat(own, worker.id, 60)
        assert await held(own, worker.id) == {job.id: job.attempt_id}
        async with connect(database, name="clock") as clock:
            await clock.execute("set lock_timeout = '50ms'")
            assert await clock.fetch(statements.SWEEP, 10) == []
            assert await clock.fetch(statements.RECOVER, job.id) == []


async def test_an_expired_worker_is_swept_when_its_row_is_not_locked(
    connection: Connection, worker: Worker, database: str
) -> None:
    job = await running(connection, worker)
    await connection.execute("update reactor.workers set lease_until = clock_timestamp() - interval '1 s'")
    await register_worker(connection, Worker("pod-2", {"work": None}), 60)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.workers for update")
        assert await connection.fetch(statements.SWEEP, 10) == [], "the worker's row is locked"
    assert [r["id"] for r in await connection.fetch(statements.SWEEP, 10)] == [job.id]


async def test_recover_takes_a_job_from_a_dead_worker_only(connection: Connection, worker: Worker, row: Row) -> None:
    """P7: with a fresh quota, to run at once."""
    job = await running(connection, worker)
    assert await connection.fetch(statements.RECOVER, job.id) == []
    await retire_worker(connection, worker.id)
    assert [r["id"] for r in await connection.fetch(statements.RECOVER, job.id)] == [job.id]
    after = await row(job.id)
    assert (after["state"], after["attempts"], after["attempt_id"]) == ("pending", 0, None)
    assert await connection.fetch(statements.RECOVER, job.id) == []


async def test_a_heartbeat_returns_the_attempts_that_the_worker_holds(connection: Connection, worker: Worker) -> None:
    """F8: it never writes to jobs."""
    jobs = [await running(connection, worker) for _ in range(3)]
    before = await connection.fetch("select changed_xid from reactor.jobs order by id")
    assert await heartbeat(connection, worker.id, 60)
    assert await held(connection, worker.id) == {job.id: job.attempt_id for job in jobs}
    assert await connection.fetch("select changed_xid from reactor.jobs order by id") == before


async def test_due_jobs_are_promoted_and_the_next_due_time_is_returned(connection: Connection, worker: Worker) -> None:
    """P6"""
    ids = [s.id for s in await submit_many(connection, [NewJob(job_type="work") for _ in range(3)])]
    await connection.execute(
        "update reactor.jobs set run_after = clock_timestamp() - interval '1 s' where id < $1", ids[2]
    )
    await connection.execute(
        "update reactor.jobs set run_after = clock_timestamp() + interval '1 h' where id = $1", ids[2]
    )
    assert await claim(connection, worker, 10) == []
    promoted = await connection.fetchrow(statements.PROMOTE_DUE, 100)
    assert promoted
    assert promoted["moved"] == 2
    assert 3500 < promoted["next_in_seconds"] <= 3600
    assert [job.id for job in await claim(connection, worker, 10)] == ids[:2]


async def test_a_job_that_becomes_due_during_a_promotion_is_the_next_one(connection: Connection) -> None:
    await connection.execute(
        """
        create function pg_temp.wait() returns trigger language plpgsql as $$
        begin
            perform pg_sleep(extract(epoch from max(j.run_after) - clock_timestamp())) from reactor.jobs j;
            return new;
        end
        $$;
        create trigger wait before update on reactor.jobs for each row execute function pg_temp.wait();
        insert into reactor.jobs (job_type, run_after)
        select 'work', clock_timestamp() + s * interval '1 s' from unnest(array[0.1, 1]) s;
        select pg_sleep(0.1)
        """
    )
    promoted = await connection.fetchrow(statements.PROMOTE_DUE, 10)
    assert promoted
    # Both, if this machine took a second to get here.
    assert promoted["moved"] == 2 or promoted["next_in_seconds"] <= 0


async def test_a_due_job_whose_row_is_locked_is_promoted_later(database: str, connection: Connection) -> None:
    """Nothing announces the end of the other transaction, if that changes nothing."""
    await connection.execute("insert into reactor.jobs (job_type, run_after) values ('work', now() + interval '1 s')")
    await connection.execute("update reactor.jobs set run_after = now() - interval '1 s'")
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs for update")
        promoted = await connection.fetchrow(statements.PROMOTE_DUE, 10)
    assert tuple(promoted or ()) == (0, 1.0)
    assert tuple(await connection.fetchrow(statements.PROMOTE_DUE, 10) or ()) == (1, None)


async def test_a_job_that_is_never_due_does_not_stop_promotion(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type, run_after) values ('work', 'infinity')")
    promoted = await connection.fetchrow(statements.PROMOTE_DUE, 10)
    assert promoted
    assert (promoted["moved"], promoted["next_in_seconds"]) == (0, None)


async def test_an_operators_retry_starts_a_new_run(connection: Connection, worker: Worker, row: Row) -> None:
    job = await running(connection, worker, max_attempts=1)
    await settle(connection, [Ending(job.id, job.attempt_id, Errored("boom"))])
    assert [tuple(r) for r in await connection.fetch(statements.RETRY, [job.id])] == [(job.id, "pending")]
    after = await row(job.id)
    assert (after["attempts"], after["error"], after["finished_at"], after["started_at"]) == (0, None, None, None)
    assert await attempts(connection, job.id) == [(1, "retried", "boom")]
    assert await connection.fetch(statements.RETRY, [job.id]) == []
    assert await claim_one(connection, worker, job.id)


async def test_a_retried_job_loses_a_key_that_was_taken(connection: Connection, row: Row) -> None:
    [first] = await submit_many(connection, [NewJob(job_type="work", idempotency_key="k")])
    await connection.fetch(statements.CANCEL, [first.id], "no")
    [second] = await submit_many(connection, [NewJob(job_type="work", idempotency_key="k")])
    assert second.outcome == "created"
    await connection.fetch(statements.RETRY, [first.id])
    assert (await row(first.id))["idempotency_key"] is None


async def test_cancelling_parked_jobs_of_a_scope_in_use_never_deadlocks(
    connection: Connection, worker: Worker, database: str
) -> None:
    async with connect(database, name="operator") as operator:
        for round_number in range(60):
            jobs = await submit_many(connection, [NewJob(job_type="work", scope=f"s{round_number}") for _ in range(4)])
            [job] = await claim(connection, worker, 10)
            await asyncio.gather(
                settle(connection, [Ending(job.id, job.attempt_id, Completed())]),
                operator.fetch(statements.CANCEL, [j.id for j in jobs[1:3]], "no"),
            )
            [last] = await claim(connection, worker, 10)
            assert last.id == jobs[3].id
            await settle(connection, [Ending(last.id, last.attempt_id, Completed())])


@pytest.mark.parametrize("outcome", ["released", "crashed"])
async def test_a_release_that_waits_for_a_start_at_most_once_does_not_refund_it(
    connection: Connection, database: str, worker: Worker, outcome: str
) -> None:
    """The process died while the start of its handler was being committed, and the server went on with it."""
    job = await running(connection, worker)
    start = [[job.id], [job.attempt_id], [None], [None], None, [None], [True]]
    async with connect(database, name="pod") as pod:
        async with connection.transaction():
            await connection.execute(statements.REPORT_FACTS, *start)
            releasing = asyncio.create_task(
                release(pod, {job.id: job.attempt_id}, outcome=cast(Release, outcome), why="it died")
            )
            await until(lambda: connection.fetchval("select exists (select from pg_locks where not granted)"))
        assert await releasing == {job.id: JobState.FAILED}
    row = await connection.fetchrow("select state, attempts, error from reactor.jobs where id = $1", job.id)
    assert row
    assert (row["state"], row["attempts"]) == ("failed", 1)
    assert row["error"].startswith("it died")
