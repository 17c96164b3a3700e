"""SIGTERM: all jobs are released within 2 s of the end of the grace period, even if handlers don't stop."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from reactor.database.connection import Connection, connect
from tests.support.jobs import Row, has_state, hold_back_completions, insert
from tests.support.link import link_for
from tests.support.pods import Marks, StartPod
from tests.support.until import until


@pytest.mark.parametrize("kind", ["await", "block", "thread", "spin", "gil"])
async def test_jobs_are_released_within_two_seconds_of_the_end_of_the_grace_period(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks, kind: str
) -> None:
    """Guarantee 7, F10: the handler awaits, blocks the loop, sleeps, loops in Python, or is in C code with the GIL; the
    best of three, since the machine may be busy."""
    times: list[float] = []
    while not times or (min(times) >= 0.5 + 2 and len(times) < 3):
        pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0.5)
        job_id = await insert(connection, kind)
        await until(lambda job_id=job_id: job_id in [job for job, *_ in marks("started")])
        asked = time.time()
        pod.signal(signal.SIGTERM)
        assert await pod.exit_code() == 1
        assert not pod.workers
        if pod.events("jobs not released in time; other pods release them when the lease expires"):
            times.append(float("inf"))
        else:
            released = await row(job_id)
            assert (released["state"], released["attempts"], released["worker_id"]) == ("pending", 0, None)
            assert released["started_at"] is not None
            [attempt] = await connection.fetch(
                "select outcome, extract(epoch from ended_at)::float8 as at from reactor.attempts where job_id = $1",
                job_id,
            )
            assert attempt["outcome"] == "released"
            times.append(attempt["at"] - asked)
            assert await connection.fetchval("select count(*) from reactor.workers where ended_at is null") == 0
        await connection.execute("update reactor.workers set ended_at = now() where ended_at is null")
        await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)
    assert min(times) < 0.5 + 2


async def test_jobs_are_released_although_the_server_is_far_away(
    start_pod: StartPod, database: str, connection: Connection, row: Row, marks: Marks
) -> None:
    """Guarantee 7: there is time for few round trips of 0.15 s."""
    async with link_for(database) as (link, url):
        link.latency_seconds = 0.075
        pod = await start_pod("--processes", "2", url=url, SHUTDOWN_GRACE_SECONDS=0)
        await until(lambda: len(pod.events("worker started")) == 2)
        job_ids = [await insert(connection, "thread") for _ in range(3)]
        await until(lambda: len(marks("started")) == 3)
        pod.signal(signal.SIGTERM)
        assert await pod.exit_code() == 1
    assert not pod.events("jobs not released in time; other pods release them when the lease expires")
    assert {(await row(job_id))["state"] for job_id in job_ids} == {"pending"}
    assert await connection.fetchval("select count(*) from reactor.workers where ended_at is null") == 0


async def test_jobs_that_end_in_the_grace_period_are_completed(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks, tmp_path: Path
) -> None:
    """Jobs inserted later are left to other pods."""
    pod = await start_pod("--concurrency", "1")
    running = await insert(connection, "held")
    await until(lambda: marks("started"))
    pod.signal(signal.SIGTERM)
    await until(lambda: pod.events("stopping"))
    await asyncio.sleep(0.5)  # for the stop to reach the worker process, which logs nothing
    later = await insert(connection, "noop")
    (tmp_path / "let-go").touch()
    assert await pod.exit_code() == 0
    assert (await row(running))["state"] == "completed"
    assert (await row(later))["state"] == "pending"
    assert (await row(later))["attempts"] == 0


async def test_on_shutdown_fail_makes_interrupted_jobs_fail(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """F10, J8: REACTOR_ON_SHUTDOWN=fail."""
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0, ON_SHUTDOWN="fail")
    job_id = await insert(connection, "thread")
    await until(lambda: marks("started"))
    pod.signal(signal.SIGTERM)
    assert await pod.exit_code() == 1
    failed = await row(job_id)
    assert failed["state"] == "failed"
    assert "Worker received SIGTERM" in failed["error"]


async def test_a_job_whose_end_is_not_committed_is_released_as_started(
    start_pod: StartPod, connection: Connection, row: Row
) -> None:
    """Its handler has returned, and may not be said to never have started."""
    await hold_back_completions(connection)
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0)
    job_id = await insert(connection, "noop")
    await until(lambda: pod.events("write postponed"))
    pod.signal(signal.SIGTERM)
    assert await pod.exit_code() == 1
    [attempt] = await connection.fetch("select outcome, error from reactor.attempts where job_id = $1", job_id)
    assert attempt["outcome"] == "released"
    assert "may have run" in attempt["error"]
    assert (await row(job_id))["attempts"] == 0


async def test_after_a_restart_no_job_stays_running(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """J8: it is run again instead."""
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0)
    job_id = await insert(connection, "await", payload='{"seconds": 1.5}')
    await until(lambda: marks("started"))
    pod.signal(signal.SIGTERM)
    await pod.exit_code()
    await start_pod()

    await until(lambda: has_state(row, job_id, "completed"))
    assert (await row(job_id))["attempts"] == 1


async def test_a_second_signal_stops_immediately(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=600)
    job_id = await insert(connection, "thread")
    await until(lambda: marks("started"))
    pod.signal(signal.SIGINT)
    await until(lambda: pod.events("stopping"))
    assert pod.process.poll() is None
    pod.signal(signal.SIGINT)
    assert await pod.exit_code() == 1
    assert (await row(job_id))["state"] == "pending"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
async def test_other_signals_that_end_a_process_stop_it_like_sigterm(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks, number: int
) -> None:
    """Those that mean nothing to a pod are ignored, by its worker processes too."""
    signal.signal(number, signal.SIG_DFL)  # a pod that is started by nohup ignores SIGHUP, and so may be these tests
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0)
    job_id = await insert(connection, "await")
    await until(lambda: marks("started"))
    worker = pod.workers[0]
    for ignored in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT):
        os.kill(worker, ignored)
    pod.signal(signal.SIGUSR1)
    pod.signal(signal.SIGUSR2)
    pod.signal(number)
    await until(lambda: pod.events("stopping"))
    assert await pod.exit_code() == 1
    assert not pod.events("worker died")
    assert ((await row(job_id))["state"], (await row(job_id))["attempts"]) == ("pending", 0)
    assert await connection.fetchval("select outcome from reactor.attempts") == "released"


async def test_the_number_of_free_releases_is_limited(connection: Connection, start_pod: StartPod, row: Row) -> None:
    """A job that is released again and again may be the cause."""
    job_id = await insert(connection, "await")
    await connection.execute(
        "insert into reactor.attempts (job_id, attempt_id, number, outcome) "
        "select $1, gen_random_uuid(), 1, 'released' from generate_series(1, 10)",
        job_id,
    )
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0)

    pod.signal(signal.SIGTERM)
    await pod.exit_code()
    assert (await row(job_id))["attempts"] in (0, 1)  # released before it started, or charged


async def test_an_unreachable_database_does_not_delay_the_exit(
    start_pod: StartPod, connection: Connection, marks: Marks, server: str
) -> None:
    """Jobs that can't be released wait for the end of the lease."""
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0)
    await insert(connection, "thread")
    await until(lambda: marks("started"))
    name = await connection.fetchval("select current_database()")
    async with connect(server, name="admin") as admin:
        await admin.execute(f"alter database {name} with allow_connections false")
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = $1 and application_name like 'reactor%'",
            name,
        )
    pod.signal(signal.SIGTERM)
    assert await pod.exit_code() == 1
    assert pod.events("jobs not released in time; other pods release them when the lease expires")
