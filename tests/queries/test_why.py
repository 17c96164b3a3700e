"""`why` has a reason for every job that is not running."""

import json
from pathlib import Path

from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker, heartbeat, register_worker, retire_worker
from reactor.lifecycle.steps import Planned, Record, StepState, plan_steps, record_steps
from reactor.outcome import Completed, Errored, Failed, Partial
from reactor.queries.jobs import find_job, list_jobs
from reactor.queries.queues import find_restrictions
from reactor.queries.why import Code, Reason, why
from tests.support.jobs import claim, insert, run


async def reasons(connection: Connection, job_id: int) -> dict[Code, Reason]:
    return {reason.code: reason for reason in (await why(connection, job_id)).reasons}


async def only_reason(connection: Connection, job_id: int, code: Code) -> Reason:
    [reason] = (await why(connection, job_id)).reasons
    assert reason.code == code, reason
    return reason


async def test_why_a_ready_job_waits_for_a_free_slot(connection: Connection, worker: Worker) -> None:
    await claim(connection, worker, await insert(connection))
    reason = await only_reason(connection, await insert(connection), Code.DUE)
    assert reason.facts == {"live_pods": 1, "held": 1, "capacity": 10, "silent_workers": 0}
    assert reason.message.endswith("1 of 10 slots are in use.")


async def test_why_counts_no_slots_of_a_dead_worker(connection: Connection, worker: Worker) -> None:
    """Its lease is over, and no sweeper has ended it yet."""
    dead = Worker("pod-2", {"work": None})
    await register_worker(connection, dead, 600)
    await claim(connection, dead, await insert(connection))
    job_id = await insert(connection)
    reason = await only_reason(connection, job_id, Code.DUE)
    assert (reason.facts["live_pods"], reason.facts["held"], reason.facts["capacity"]) == (2, 1, 11)
    await connection.execute("update reactor.workers set lease_until = clock_timestamp() where id = $1", dead.id)
    reason = await only_reason(connection, job_id, Code.DUE)
    assert (reason.facts["live_pods"], reason.facts["held"], reason.facts["capacity"]) == (1, 0, 10)


async def fall_silent(connection: Connection, worker: Worker, state: str) -> None:
    """As its supervisor reports."""
    counts = json.dumps({"silent_seconds": 42.0, "silent_state": state, "silent_pid": 4711})
    assert await heartbeat(connection, worker.id, 600, counts)


async def test_why_counts_no_slots_of_a_worker_process_that_does_not_respond(
    connection: Connection, worker: Worker
) -> None:
    silent = Worker("pod-2", {"work": None})
    await register_worker(connection, silent, 600)
    await claim(connection, silent, await insert(connection))
    await fall_silent(connection, silent, "stopped")
    reason = await only_reason(connection, await insert(connection), Code.DUE)
    assert reason.facts == {"live_pods": 2, "held": 0, "capacity": 10, "silent_workers": 1}
    assert reason.message.endswith("0 of 10 slots are in use, without those of 1 worker process that does not respond.")


async def test_why_a_running_job_does_not_progress(connection: Connection, worker: Worker) -> None:
    job_id = await insert(connection)
    await claim(connection, worker, job_id)
    await fall_silent(connection, worker, "stopped")
    found = await reasons(connection, job_id)
    assert list(found) == [Code.RUNNING, Code.WORKER_SILENT]
    message, facts = found[Code.WORKER_SILENT].message, found[Code.WORKER_SILENT].facts
    assert message.startswith("Its worker process has not responded for 4")
    assert "it is stopped (SIGSTOP)" in message
    assert "`kill -CONT 4711` on pod-1" in message
    assert (facts["state"], facts["pid"]) == ("stopped", 4711)
    assert 42 <= facts["for_seconds"] < 72
    await fall_silent(connection, worker, "blocked")
    assert "a handler blocks it" in (await reasons(connection, job_id))[Code.WORKER_SILENT].message
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'x')", job_id)
    assert list(await reasons(connection, job_id)) == [Code.CANCELLED, Code.HANDLER_NOT_STOPPED, Code.WORKER_SILENT]
    await retire_worker(connection, worker.id)
    assert Code.WORKER_SILENT not in await reasons(connection, job_id)


async def test_why_does_not_depend_on_what_another_version_stores(connection: Connection, worker: Worker) -> None:
    job_id = await insert(connection)
    await claim(connection, worker, job_id)
    for strange in ("{}", "[]", "7", '{"silent_seconds": "x"}', '{"silent_seconds": 1, "silent_pid": "x"}'):
        await connection.execute("update reactor.workers set counts = $1", strange)
        assert Code.RUNNING in await reasons(connection, job_id)


async def test_why_a_job_is_not_due(connection: Connection, worker: Worker) -> None:
    later = await connection.fetchval("select clock_timestamp() + interval '2 hours 30 minutes'")
    reason = await only_reason(connection, await insert(connection, run_after=later), Code.NOT_DUE)
    assert "in 2 h 30 min" in reason.message or "in 2 h 29 min" in reason.message
    assert 8900 < reason.facts["in_seconds"] <= 9000
    never = await connection.fetchval(
        "insert into reactor.jobs (job_type, run_after) values ('work', 'infinity') returning id"
    )
    assert (await only_reason(connection, never, Code.NOT_DUE)).facts == {"in_seconds": None}


async def test_why_names_ten_dependencies_of_a_waiting_job(connection: Connection, worker: Worker) -> None:
    needed = [await insert(connection) for _ in range(12)]
    await claim(connection, worker, needed[1])
    reason = await only_reason(connection, await insert(connection, after=needed), Code.DEPENDENCIES)
    assert f"{needed[0]} (pending), {needed[1]} (running)" in reason.message
    assert reason.message.endswith("and 2 more.")
    assert (len(reason.facts["jobs"]), reason.facts["count"]) == (10, 12)
    await run(connection, worker, needed[0], Completed())
    one = await insert(connection, after=[needed[0], needed[1]])
    assert (await only_reason(connection, one, Code.DEPENDENCIES)).message == f"Waiting for job {needed[1]} (running)."


async def test_why_a_job_waits_although_its_dependencies_are_met(connection: Connection, worker: Worker) -> None:
    job_id = await insert(connection)
    await connection.execute("update reactor.jobs set state = 'waiting' where id = $1", job_id)
    await only_reason(connection, job_id, Code.WAITS_FOR_NOTHING)


async def test_why_a_job_waits_for_others_that_are_retried_with_it(connection: Connection, worker: Worker) -> None:
    job_id = await insert(connection)
    await connection.execute("update reactor.jobs set state = 'waiting' where id = $1", job_id)
    await connection.execute("insert into reactor.retries (accepted_at) values (now())")
    await only_reason(connection, job_id, Code.RETRYING)


async def test_why_names_the_job_and_pod_that_hold_the_scope(connection: Connection, worker: Worker) -> None:
    holder, job_id = await insert(connection, scope="s"), await insert(connection, scope="s")
    await claim(connection, worker, holder)
    reason = await only_reason(connection, job_id, Code.SCOPE_BUSY)
    assert f"job {holder} has been running on pod-1" in reason.message
    assert (reason.facts["job_id"], reason.facts["pod"]) == (holder, "pod-1")


async def test_why_a_cancelled_job_still_holds_the_scope(connection: Connection, worker: Worker) -> None:
    """F12: also after a cancel, until the handler has stopped or its worker is dead."""
    holder, job_id = await insert(connection, scope="s"), await insert(connection, scope="s")
    await claim(connection, worker, holder)
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


async def test_why_a_job_waits_for_its_turn_in_a_free_scope(connection: Connection, worker: Worker) -> None:
    ahead, job_id = await insert(connection, scope="s"), await insert(connection, scope="s")
    await connection.execute("update reactor.jobs set parked = true where id = $1", job_id)
    reason = await only_reason(connection, job_id, Code.SCOPE_TURN)
    assert reason.facts == {"scope": "s", "ahead_id": ahead}
    await connection.execute("delete from reactor.jobs where id = $1", ahead)
    assert (await only_reason(connection, job_id, Code.SCOPE_TURN)).facts["ahead_id"] is None


async def test_why_a_queue_is_paused_or_at_its_limit(connection: Connection, worker: Worker) -> None:
    await claim(connection, worker, await insert(connection, queue="q"))
    job_id = await insert(connection, queue="q")
    await connection.execute("insert into reactor.queues (name, max_running) values ('q', 1)")
    reason = await only_reason(connection, job_id, Code.QUEUE_FULL)
    assert "1 of 1" in reason.message
    await connection.execute("update reactor.queues set paused = true, max_running = 2")
    assert "reactor resume q" in (await only_reason(connection, job_id, Code.QUEUE_PAUSED)).message


async def test_why_a_limit_of_its_lane_is_reached(connection: Connection, worker: Worker) -> None:
    await connection.execute("insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 1)")
    running, _, job_id = [await insert(connection, lane="customer=17") for _ in range(3)]
    await claim(connection, worker, running)
    reason = await only_reason(connection, job_id, Code.LIMIT_FULL)
    assert reason.message == (
        "The type work and lane customer=17 is at its limit: 1 of 1 jobs running. 1 job is ahead in its line."
    )
    assert (reason.facts["max_running"], reason.facts["running"], reason.facts["ahead"]) == (1, 1, 1)
    other = await insert(connection, lane="customer=18")
    await only_reason(connection, other, Code.DUE)


async def test_why_a_rate_is_used_up(connection: Connection, worker: Worker) -> None:
    await connection.execute("insert into reactor.limits (job_type, rate, period) values ('work', 2, '1 hour')")
    first, second, job_id = [await insert(connection) for _ in range(3)]
    for claimed in (first, second):
        await claim(connection, worker, claimed)
    reason = await only_reason(connection, job_id, Code.RATE_USED_UP)
    assert "at its rate of 2 per 1 h" in reason.message
    assert 1700 < reason.facts["opens_in_seconds"] <= 1800


async def test_why_nothing_runs_while_draining(connection: Connection, worker: Worker) -> None:
    await connection.execute("update reactor.settings set draining = true")
    await only_reason(connection, await insert(connection), Code.DRAINING)


async def test_why_no_pod_has_the_handler(connection: Connection, worker: Worker) -> None:
    reason = await only_reason(connection, await insert(connection, job_type="report"), Code.NO_HANDLER)
    assert reason.message == "The only live pod has no handler for report."
    assert reason.facts["live_pods"] == 1
    await retire_worker(connection, worker.id)
    assert "No pod is alive" in (await only_reason(connection, await insert(connection), Code.NO_HANDLER)).message


async def test_why_ignores_pods_without_a_heartbeat(connection: Connection) -> None:
    await register_worker(connection, Worker("silent", {"work": None}), 0)
    assert (await only_reason(connection, await insert(connection), Code.NO_HANDLER)).facts["live_pods"] == 0


async def test_why_no_pod_works_on_the_queue(connection: Connection) -> None:
    await register_worker(connection, Worker("a", {"work": None}, queues=("fast",)), 600)
    assert (
        "No live pod works on the queue slow."
        in (await only_reason(connection, await insert(connection, queue="slow"), Code.NO_POD_FOR_QUEUE)).message
    )
    await register_worker(connection, Worker("b", {"report": None}, queues=("slow",)), 600)
    reason = await only_reason(connection, await insert(connection, queue="slow"), Code.NO_POD_FOR_QUEUE)
    assert "handles work and works on the queue slow: 1 of 2 have the handler." in reason.message
    await register_worker(connection, Worker("b", {"work": None}, queues=("slow",)), 600)
    reason = await only_reason(connection, await insert(connection, queue="slow"), Code.DUE)
    assert reason.facts["live_pods"] == 1


async def test_why_a_job_without_a_type_never_runs(connection: Connection, worker: Worker) -> None:
    """D14: rows without job_type are ignored."""
    await only_reason(connection, await insert(connection, job_type=None), Code.NO_JOB_TYPE)


async def test_why_attempts_are_used_up(connection: Connection, worker: Worker) -> None:
    job_id = await insert(connection)
    await run(connection, worker, job_id, Errored("no", retry_after_seconds=0))
    await connection.execute("update reactor.jobs set max_attempts = 1 where id = $1", job_id)
    reason = await only_reason(connection, job_id, Code.ATTEMPTS_USED_UP)
    assert reason.facts == {"attempts": 1, "quota": 1}
    assert await claim_one(connection, worker, job_id) is None


async def test_why_shows_the_pod_of_a_running_job_and_whether_its_worker_is_alive(
    connection: Connection, worker: Worker
) -> None:
    job_id = await insert(connection)
    await claim(connection, worker, job_id)
    reason = await only_reason(connection, job_id, Code.RUNNING)
    assert "Running on pod-1, attempt 1 of 3" in reason.message
    assert 500 < reason.facts["lease_seconds"] <= 600
    await retire_worker(connection, worker.id)
    assert f"reactor recover {job_id}" in (await only_reason(connection, job_id, Code.WORKER_DEAD)).message


async def test_why_a_running_job_waits_for_the_next_run_of_a_step(connection: Connection, worker: Worker) -> None:
    job = await claim(connection, worker, await insert(connection))
    planned = {"a": Planned(0, 3), "b": Planned(1, 1)}
    await plan_steps(connection, job.id, job.attempt_id, planned, started=False, lists_stored=True)
    await only_reason(connection, job.id, Code.RUNNING)
    failed = Record(job.id, job.attempt_id, "a", StepState.PENDING, None, "ValueError: x", 1, 60.0, 0.5, 0.0)
    await record_steps(connection, [failed])
    reason = (await reasons(connection, job.id))[Code.STEP_WAITS]
    assert reason.message.startswith("None of its steps is running. a has failed and runs again in ")
    assert reason.message.endswith(", run 2 of 3.")
    assert reason.facts | {"in_seconds": 0} == {
        "name": "a",
        "run": 2,
        "max_attempts": 3,
        "in_seconds": 0,
        "error": "ValueError: x",
    }
    await connection.execute("""update reactor.jobs set step_counts = step_counts || '{"running": 1}'""")
    await only_reason(connection, job.id, Code.RUNNING)


async def test_why_shows_how_a_job_ended(connection: Connection, worker: Worker) -> None:
    for outcome, code, words in (
        (Completed({}, "all 7 days"), Code.COMPLETED, "all 7 days"),
        (Partial({}, "2 of 7 days"), Code.PARTIAL, "in part"),
        (Failed("no such file"), Code.FAILED, "no such file"),
    ):
        job_id = await insert(connection)
        await run(connection, worker, job_id, outcome)
        assert words in (await only_reason(connection, job_id, code)).message


async def test_why_names_the_job_that_caused_a_cancellation(connection: Connection, worker: Worker) -> None:
    first = await insert(connection)
    second = await insert(connection, after=[first])
    await run(connection, worker, first, Failed("no"))
    reason = await only_reason(connection, second, Code.CANCELLED)
    assert (reason.facts["broken_by"], reason.facts["broken_by_state"]) == (first, "failed")
    assert f"reactor retry {first}" in reason.message


async def test_why_lists_all_applicable_reasons(connection: Connection) -> None:
    await connection.execute("update reactor.settings set draining = true")
    await connection.execute("insert into reactor.queues (name, paused) values ('default', true)")
    waiting = await insert(connection, after=[await insert(connection)])
    assert set(await reasons(connection, waiting)) == {
        Code.DEPENDENCIES,
        Code.DRAINING,
        Code.QUEUE_PAUSED,
        Code.NO_HANDLER,
    }


async def test_a_viewer_may_run_all_queries(connection: Connection, worker: Worker) -> None:
    job_id = await insert(connection, scope="s")
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
