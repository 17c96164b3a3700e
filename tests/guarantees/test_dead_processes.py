"""Pods as real processes: jobs survive the death of any of them."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from reactor.database.connection import Connection
from tests.support.jobs import Row, has_state, hold_back_completions, insert
from tests.support.pods import Marks, StartPod, is_alive
from tests.support.until import until


async def states(connection: Connection) -> dict[str, int]:
    rows = await connection.fetch("select state, count(*) from reactor.jobs group by 1")
    return {row["state"]: row["count"] for row in rows}


async def test_a_committed_row_is_run(start_pod: StartPod, connection: Connection, row: Row) -> None:
    """Guarantee 1, in the simplest case. Polling is off, so the notification starts it."""
    await start_pod(POLL_SECONDS=0)
    job_id = await insert(connection, "noop")
    await until(lambda: has_state(row, job_id, "completed"))


async def test_jobs_of_a_killed_worker_process_run_again_immediately(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """F10: kill -9 of one of two worker processes: the other runs its job within a second, not charged; the best of
    five, since the machine may be busy. Polling is off, and the lease is a minute."""
    pod = await start_pod("--processes", "2", "--concurrency", "1", POLL_SECONDS=0)
    times: list[float] = []
    while not times or (min(times) >= 1 and len(times) < 5):
        await until(lambda: len(pod.events("worker started")) == 2 + len(times))
        job_id = await insert(connection, "await")

        def starts(job_id: int = job_id) -> list[tuple[int, float]]:
            return [(pid, at) for job, _, pid, at in marks("started") if job == job_id]

        [(pid, _)] = await until(starts)
        killed = time.time()
        pod.kill(pid)
        await until(lambda starts=starts: len(starts()) == 2)
        (_, _), (other, again) = starts()
        times.append(again - killed)
        assert other != pid
        assert (await row(job_id))["attempts"] == 1
        history = await connection.fetch("select outcome, error from reactor.attempts where job_id = $1", job_id)
        assert [record["outcome"] for record in history] == ["crashed"]
        assert "SIGKILL" in history[0]["error"]
        await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)
    assert min(times) < 1


@pytest.mark.parametrize("payload", ["{}", '{"escapes": true}'])
async def test_a_dead_worker_process_is_noticed_although_its_handlers_forked(
    start_pod: StartPod, connection: Connection, marks: Marks, payload: str
) -> None:
    """The forked process keeps the control socket open for 30 s."""
    pod = await start_pod()
    await insert(connection, "forks", payload=payload)
    _, _, forked, _ = (await until(lambda: marks("forked")))[0]
    pod.kill(marks("forks")[0][2])
    try:
        await until(lambda: pod.events("worker died"))
        await until(lambda: len(marks("forks")) == 2)
    finally:
        pod.kill(forked)


AS_SUBREAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
async def test_a_pod_that_inherits_orphans_reaps_them(
    start_pod: StartPod, connection: Connection, marks: Marks
) -> None:
    """As the first process of a container does. The ends of its own processes are still noticed as such."""
    pod = await start_pod(prefix=[sys.executable, "-c", AS_SUBREAPER])
    for _ in range(3):
        await insert(connection, "orphan")
    await until(lambda: len(marks("orphan")) == 3)
    orphans = [pid for _, _, pid, _ in marks("orphan")]
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans))
    pod.kill(pod.workers[0])
    [died] = await until(lambda: pod.events("worker died"))
    assert "SIGKILL" in died["why"]


async def test_a_killed_worker_process_is_replaced(start_pod: StartPod, connection: Connection, marks: Marks) -> None:
    pod = await start_pod()
    await insert(connection, "await")
    _, _, pid, _ = (await until(lambda: marks("started")))[0]
    pod.kill(pid)
    await until(lambda: len(marks("started")) == 2)
    assert marks("started")[1][2] in pod.workers


async def test_a_worker_dies_with_its_supervisor(
    start_pod: StartPod, connection: Connection, marks: Marks, row: Row
) -> None:
    """Its job runs again on another pod when the lease has expired."""
    pod = await start_pod()
    job_id = await insert(connection, "gil")  # the hardest case: no other thread of the process runs for 60 s
    _, _, pid, _ = (await until(lambda: marks("started")))[0]
    pod.kill(pod.process.pid)
    await until(lambda: not is_alive(pid))
    await connection.execute("update reactor.workers set lease_until = clock_timestamp()")
    await start_pod()
    await until(lambda: len(marks("started")) == 2)
    assert (await row(job_id))["attempts"] == 2
    assert await connection.fetchval("select outcome from reactor.attempts") == "lease_lost"


async def test_a_dead_pods_jobs_run_again_within_the_lease(
    start_pod: StartPod, connection: Connection, marks: Marks
) -> None:
    """P8: supervisor and worker die together. The sweeper of another pod wakes when their lease ends, not earlier, and
    not half a minute later at its next regular sweep."""
    pod = await start_pod(LEASE_SECONDS=12, HEARTBEAT_SECONDS=2)
    await insert(connection, "await")
    await until(lambda: marks("started"))
    pod.kill()
    assert await connection.fetchval("select lease_until <= clock_timestamp() + interval '12 s' from reactor.workers")
    # Shortened only now: on a busy machine a pod could lose such a short lease.
    await connection.execute("update reactor.workers set lease_until = clock_timestamp() + interval '4 s'")
    await start_pod(HEARTBEAT_SECONDS=30)
    await until(lambda: len(marks("started")) == 2)
    assert await connection.fetchval(
        "select j.locked_at >= w.lease_until from reactor.jobs j, reactor.workers w order by w.lease_until limit 1"
    )


@pytest.mark.parametrize("kind", ["die", "close_files"])
async def test_a_job_that_kills_its_process_fails_and_its_neighbours_are_not_charged(
    start_pod: StartPod, connection: Connection, row: Row, kind: str
) -> None:
    """Guarantee 6: a poison job, which kills its process while it runs, or after it returned."""
    killer = await insert(connection, kind, priority=-1)
    neighbours = [await insert(connection, "await", payload='{"seconds": 0.2}') for _ in range(50)]
    await start_pod("--concurrency", "60")
    await until(lambda: has_state(row, killer, "failed"), within_seconds=40)

    async def all_completed() -> bool:
        return await states(connection) == {"completed": 50, "failed": 1}

    await until(all_completed, within_seconds=40)
    failed = await row(killer)
    assert failed["attempts"] == 3
    assert "killed its worker process" in failed["error"]
    attempts = await connection.fetchval("select max(attempts) from reactor.jobs where id = any ($1)", neighbours)
    assert attempts == 1


async def test_a_job_that_ends_its_process_alone_is_charged_at_once(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """Guarantee 6: no other job can be the cause."""
    killer = await insert(connection, "exit", max_attempts=1)
    await start_pod()
    await until(lambda: has_state(row, killer, "failed"))
    assert len(marks("started")) == 1
    assert "ran alone" in (await row(killer))["error"]


async def test_a_job_whose_process_dies_before_its_end_is_committed_may_have_run(
    start_pod: StartPod, connection: Connection, row: Row
) -> None:
    """Its handler has returned: an email that it sent is sent again."""
    await hold_back_completions(connection)
    pod = await start_pod()
    job_id = await insert(connection, "noop")
    await until(lambda: pod.events("write postponed"))
    pod.kill(pod.workers[0])
    await until(lambda: connection.fetchval("select exists (select from reactor.attempts)"))
    [attempt] = await connection.fetch("select outcome, error from reactor.attempts")
    assert attempt["outcome"] == "crashed"
    assert "may have run" in attempt["error"]
    assert [event["ended_and_not_written"] for event in pod.events("worker died")] == [1]
    [released] = await until(lambda: pod.events("jobs of a dead worker process released"))
    assert (released["started"], released["unstarted"]) == ([job_id], 0)
    await connection.execute("drop trigger hold_back on reactor.jobs")
    await until(lambda: has_state(row, job_id, "completed"))
    assert (await row(job_id))["attempts"] == 1


async def test_jobs_of_a_killed_worker_process_do_not_wait_for_an_end_that_it_was_writing(
    start_pod: StartPod, connection: Connection, marks: Marks
) -> None:
    """The server notices that nobody waits for the answer, and gives the rows free."""
    if "linux" not in await connection.fetchval("select version()"):
        pytest.skip("only servers on Linux notice that")
    await connection.execute(
        "create function hold() returns trigger language plpgsql as "
        "$$ begin perform pg_advisory_xact_lock(4711) from made where parent_id is not null; return null; end $$; "
        "create trigger hold after insert on reactor.jobs referencing new table as made "
        "for each statement execute function hold()"
    )
    await connection.execute("select pg_advisory_lock(4711)")
    pod = await start_pod()
    await insert(connection, "await")
    await insert(connection, "parent")
    await until(lambda: marks("started"))
    holds = "select exists (select from pg_locks where locktype = 'advisory' and not granted)"
    await until(lambda: connection.fetchval(holds))
    pod.kill(pod.workers[0])
    await until(lambda: len(marks("started")) == 2)
    crashed = "select count(*) = 2 from reactor.attempts where outcome = 'crashed'"
    await until(lambda: connection.fetchval(crashed))
    await connection.execute("select pg_advisory_unlock(4711)")


async def test_a_query_of_a_killed_worker_process_does_not_keep_the_next_attempt_waiting(
    start_pod: StartPod, connection: Connection, marks: Marks, row: Row
) -> None:
    """The server would run it to its end, for a client that is gone, and keep its locks."""
    if "linux" not in await connection.fetchval("select version()"):
        pytest.skip("only servers on Linux notice that")
    pod = await start_pod("--processes", "2")
    job_id = await insert(connection, "long_query")
    [(_, _, worker, _)] = await until(lambda: marks("locked"))
    sleeps = "select exists (select from pg_stat_activity where query = 'select pg_sleep(600)' and state = 'active')"
    await until(lambda: connection.fetchval(sleeps))
    pod.kill(worker)
    await until(lambda: has_state(row, job_id, "completed"))


async def test_a_zombie_changes_nothing_and_is_stopped(
    start_pod: StartPod, connection: Connection, marks: Marks, row: Row
) -> None:
    """F6, F7: a pod that was suspended for longer than its lease continues after another pod took its job."""
    await connection.execute("create table ledger (job_id bigint)")
    frozen = await start_pod(LEASE_SECONDS=20, HEARTBEAT_SECONDS=1)
    job_id = await insert(connection, "slow_ledger")
    _, _, pid, _ = (await until(lambda: marks("started")))[0]
    frozen.signal_all(signal.SIGSTOP)
    await connection.execute("update reactor.workers set lease_until = clock_timestamp()")
    await start_pod()
    await until(lambda: len(marks("started")) == 2)
    mine = (await row(job_id))["attempt_id"]
    frozen.signal_all(signal.SIGCONT)
    await until(lambda: frozen.events("lease lost"))
    await until(lambda: not is_alive(pid))
    await until(lambda: has_state(row, job_id, "completed"))
    assert (await row(job_id))["attempt_id"] == mine
    assert await connection.fetchval("select count(*) from ledger") == 1
    assert [attempt for _, attempt, _, _ in marks("ended")] == [2]


async def test_a_running_job_is_never_considered_dead(start_pod: StartPod, connection: Connection, row: Row) -> None:
    """Guarantee 6, D4, F8: for longer than a lease: awaiting, blocking the event loop, in C code that holds the GIL.
    A pod that can't write for two thirds of its lease gives its jobs up, so that time must be longer than a busy
    machine delays a pod.
    """
    leases = {"LEASE_SECONDS": 8, "HEARTBEAT_SECONDS": 1}
    await start_pod("--processes", "3", "--concurrency", "1", **leases)
    jobs = [await insert(connection, kind, payload='{"seconds": 11}') for kind in ("await", "block", "gil")]
    await start_pod(**leases)  # sweeps
    for job_id in jobs:
        await until(lambda job_id=job_id: has_state(row, job_id, "completed"), within_seconds=40)
        assert (await row(job_id))["attempts"] == 1
    assert await connection.fetchval("select count(*) from reactor.attempts") == 0


async def test_a_thread_that_does_not_end_is_replaced_with_its_process(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """A new process runs its job again; the old one exits when its other jobs have ended."""
    pod = await start_pod()
    neighbour = await insert(connection, "await", payload='{"seconds": 4}')
    stuck = await insert(connection, "stuck")
    await until(lambda: has_state(row, stuck, "completed"))
    old, new = (pid for job_id, _, pid, _ in marks("started") if job_id == stuck)
    assert old != new
    assert (await row(stuck))["attempts"] == 2
    await until(lambda: not is_alive(old))
    assert (await row(neighbour))["state"] == "completed"
    assert (await row(neighbour))["attempts"] == 1
    await until(lambda: pod.workers == [new])


async def test_a_process_whose_handler_blocks_the_loop_is_ended_at_the_timeout(
    start_pod: StartPod, connection: Connection, row: Row
) -> None:
    """No timer of the process can fire, so the supervisor ends it. Other jobs of the process are not charged."""
    await start_pod()
    neighbour = await insert(connection, "await", payload='{"seconds": 1}')
    hog = await insert(connection, "hog")
    await until(lambda: has_state(row, hog, "completed"), within_seconds=30)
    await until(lambda: has_state(row, neighbour, "completed"))
    assert (await row(hog))["attempts"] == 2
    assert (await row(neighbour))["attempts"] == 1


async def test_two_pods_with_one_name_are_distinguished(
    start_pod: StartPod, connection: Connection, marks: Marks
) -> None:
    """P4: two pods with the same hostname, and a pod after a restart, are different workers."""
    first = await start_pod("--concurrency", "1", POD_ID="same")
    await start_pod("--concurrency", "1", POD_ID="same")
    jobs = {await insert(connection, "await") for _ in range(2)}
    await until(lambda: {job for job, *_ in marks("started")} == jobs)
    held = await connection.fetch("select locked_by, worker_id from reactor.jobs")
    assert {record["locked_by"] for record in held} == {"same"}
    assert len({record["worker_id"] for record in held}) == 2
    first.kill()
    await start_pod("--concurrency", "1", POD_ID="same", ready=True)
    # The new pod has the dead one's name; the dead one keeps its job until its lease has expired.
    assert len(marks("started")) == 2


async def test_every_job_ends_once_although_pods_are_killed(start_pod: StartPod, connection: Connection) -> None:
    """Guarantees 1 to 4: 3,000 jobs, two pods, one of them killed and started again every second, at least twice."""
    await connection.execute("create table ledger (job_id bigint)")
    settings = {"LEASE_SECONDS": 3, "HEARTBEAT_SECONDS": 0.5}
    await start_pod("--concurrency", "5", **settings)
    deaths = 0
    while deaths < 2 or (await states(connection)).keys() != {"completed"}:
        victim = await start_pod("--concurrency", "20", **settings)
        if deaths < 2:
            await connection.execute(
                "insert into reactor.jobs (job_type) select 'ledger' from generate_series(1, 1500)"
            )
        await asyncio.sleep(1)  # it dies in the middle of its work
        victim.kill()
        deaths += 1
        assert deaths < 60
    assert await connection.fetchval("select count(*) from ledger") == 3000
    assert await connection.fetchval("select count(distinct job_id) from ledger") == 3000


async def test_once_runs_what_is_due_and_exits(start_pod: StartPod, connection: Connection, row: Row) -> None:
    """J13: batch mode."""
    due = [await insert(connection, "noop") for _ in range(30)]
    later = await connection.fetchval(
        "insert into reactor.jobs (job_type, run_after) values ('noop', now() + interval '1 hour') returning id"
    )
    pod = await start_pod("--once", ready=False)
    assert await pod.exit_code() == 0
    assert {(await row(job_id))["state"] for job_id in due} == {"completed"}
    assert (await row(later))["state"] == "pending"


async def test_once_ends_after_a_handler_that_committed_its_own_end(
    start_pod: StartPod, connection: Connection, row: Row
) -> None:
    await connection.execute("create table ledger (job_id bigint)")
    job_id = await insert(connection, "slow_ledger", payload='{"seconds": 1}')
    # Nothing else would wake it: the next reconciliation is after 30 s.
    pod = await start_pod("--once", ready=False, POLL_SECONDS=0, HEARTBEAT_SECONDS=30)
    assert await pod.exit_code(within_seconds=25) == 0
    assert (await row(job_id))["state"] == "completed"


async def test_once_reports_a_failure(start_pod: StartPod, connection: Connection) -> None:
    await insert(connection, "noop")
    await insert(connection, "fails")
    pod = await start_pod("--once", ready=False)
    assert await pod.exit_code() == 1


@pytest.mark.parametrize(("job_type", "code"), [("noop", 0), ("fails", 1)])
async def test_a_pod_with_max_jobs_runs_one_job_and_exits_with_its_result(
    start_pod: StartPod, connection: Connection, row: Row, job_type: str, code: int
) -> None:
    """F11: the exit code says how the job ended."""
    first = await insert(connection, job_type)
    second = await insert(connection, job_type)
    pod = await start_pod("--max-jobs", "1", ready=False)
    assert await pod.exit_code() == code
    assert (await row(first))["finished_at"] is not None
    assert (await row(second))["state"] == "pending"


async def test_a_pod_runs_jobs_of_its_queues_only(start_pod: StartPod, connection: Connection, row: Row) -> None:
    await start_pod("--queues", "red,green")
    blue = await insert(connection, "noop", queue="blue")
    red = await insert(connection, "noop", queue="red")
    await until(lambda: has_state(row, red, "completed"))
    assert (await row(blue))["state"] == "pending"


async def test_a_hundred_bursts_leave_no_connection_file_or_process_open(
    start_pod: StartPod, connection: Connection
) -> None:
    """From idle to busy and back: as many connections, files and processes as before."""
    pod = await start_pod(HEARTBEAT_SECONDS=1)

    async def burst() -> None:
        await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 20)")
        await until(lambda: _all_completed(connection))

    def descriptors() -> list[int]:
        return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (pod.process.pid, *pod.workers)]

    async def only_the_usual_sessions() -> bool:
        sessions = await connection.fetch(
            "select application_name from pg_stat_activity "
            "where datname = current_database() and application_name like 'reactor%' order by 1"
        )
        usual = ("claim", "heartbeat", "listen", "settle", "sweep")
        return [session[0] for session in sessions] == [f"reactor {name} pod-1" for name in usual]

    for _ in range(5):
        await burst()
    await until(only_the_usual_sessions)  # some are opened late, and those of the start are closed late
    before, workers = descriptors(), pod.workers
    for _ in range(100):
        await burst()
    await until(lambda: all(now <= then for now, then in zip(descriptors(), before, strict=True)))
    await until(only_the_usual_sessions)
    assert pod.workers == workers


async def _all_completed(connection: Connection) -> bool:
    return not await connection.fetchval("select exists (select from reactor.jobs where state <> 'completed')")
