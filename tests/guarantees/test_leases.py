"""Leases: pods that outlive the database's absence, and pods that can't renew them."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate
from reactor.embedded import start_embedded
from tests.support.jobs import Row, insert
from tests.support.pods import Marks, StartPod, is_alive
from tests.support.until import until


@asynccontextmanager
async def outage(server: str, connection: Connection) -> AsyncIterator[None]:
    """For everybody but the test's own connection."""
    name = await connection.fetchval("select current_database()")
    own = await connection.fetchval("select pg_backend_pid()")
    async with connect(server, name="test") as admin:
        await admin.execute(f"alter database {name} allow_connections false")
        try:
            await admin.execute(
                f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and pid <> {own}"
            )
            yield
        finally:
            await admin.execute(f"alter database {name} allow_connections true")


async def test_an_outage_beyond_the_lease_charges_no_job(
    server: str, start_pod: StartPod, connection: Connection, marks: Marks, tmp_path: Path
) -> None:
    """Guarantees 1 and 6: every lease is over when the database returns, and every pod is alive. Their jobs run again,
    also those with a single attempt."""
    for _ in range(2):
        await start_pod("--concurrency", "5", LEASE_SECONDS=6, HEARTBEAT_SECONDS=1)
    for _ in range(10):
        await insert(connection, "held", max_attempts=1)
    await until(lambda: len(marks("started")) == 10)
    async with outage(server, connection):
        await until(
            lambda: connection.fetchval("select bool_and(lease_until < clock_timestamp()) from reactor.workers"), 40
        )
    (tmp_path / "let-go").touch()
    await until(lambda: connection.fetchval("select bool_and(state in ('completed', 'failed')) from reactor.jobs"), 60)
    rows = await connection.fetch("select state, attempts, count(*) from reactor.jobs group by 1, 2")
    assert [tuple(row) for row in rows] == [("completed", 1, 10)]
    history = await connection.fetch("select distinct outcome, error from reactor.attempts")
    assert [tuple(row) for row in history] == [
        ("released", "The worker process ended: its lease could not be renewed. The handler may have run to its end.")
    ]


async def test_a_frozen_supervisors_worker_ends_before_others_take_its_jobs(
    start_pod: StartPod, connection: Connection, marks: Marks, row: Row
) -> None:
    """Guarantee 5, in the hardest case: the handler holds the interpreter, so nothing in its process can end it."""
    leases = {"LEASE_SECONDS": 9, "HEARTBEAT_SECONDS": 1}
    frozen = await start_pod(**leases)
    job_id = await insert(connection, "gil", scope="s", payload='{"seconds": 120}')
    _, _, pid, _ = (await until(lambda: marks("started")))[0]
    await start_pod(**leases)
    frozen.signal(signal.SIGSTOP)
    try:
        await until(lambda: len(marks("started")) == 2, within_seconds=60)
        assert not is_alive(pid)
    finally:
        frozen.signal(signal.SIGCONT)
    assert frozen.events("worker process killed: its supervisor does not renew its lease")
    # The frozen pod works again.
    await until(lambda: len(frozen.events("worker started")) == 2)
    assert (await row(job_id))["attempts"] == 2


async def test_the_process_that_enforces_leases_is_replaced(start_pod: StartPod, connection: Connection) -> None:
    pod = await start_pod(LEASE_SECONDS=6, HEARTBEAT_SECONDS=1)
    [worker] = pod.workers
    [enforcer] = [pid for pid in pod.children if pid != worker]
    os.kill(enforcer, signal.SIGKILL)
    await until(lambda: [pid for pid in pod.children if pid not in (worker, enforcer)])
    pod.signal(signal.SIGSTOP)
    try:
        await until(lambda: not is_alive(worker))
    finally:
        pod.signal(signal.SIGCONT)
    pod.signal(signal.SIGTERM)
    await pod.exit_code()
    assert not pod.children


async def test_the_first_heartbeat_of_a_pod_does_not_wait_for_the_interval(
    start_pod: StartPod, connection: Connection
) -> None:
    await start_pod(LEASE_SECONDS=600, HEARTBEAT_SECONDS=300)
    registered = await connection.fetchval("select started_at from reactor.workers")
    await until(
        lambda: connection.fetchval(
            "select heartbeat_at > $1::timestamptz + interval '1 ms' from reactor.workers", registered
        )
    )


async def test_handlers_that_take_all_connections_do_not_silence_the_heartbeat(
    folder: Path, start_pod: StartPod
) -> None:
    """Its connection, and the one that ends jobs, are opened before the first job is claimed."""
    with start_embedded(folder, version=18, options={"fsync": "off"}) as server:
        await migrate(server.url())
        async with connect(server.url(), name="test") as connection:
            await connection.execute("create role limited login in role reactor_worker connection limit 8")
            await connection.execute("create table ledger (job_id bigint); grant all on ledger to limited")
            url = server.url().replace("postgres@", "limited@", 1)
            pod = await start_pod("--concurrency", "20", url=url, LEASE_SECONDS=12, HEARTBEAT_SECONDS=1)
            for _ in range(20):
                await insert(connection, "slow_ledger", payload='{"seconds": 5}')
            await until(
                lambda: connection.fetchval("select count(*) = 8 from pg_stat_activity where usename = 'limited'")
            )
            later = await connection.fetchval("select heartbeat_at + interval '2 s' from reactor.workers")
            await until(
                lambda: connection.fetchval(
                    "select heartbeat_at > $1::timestamptz + interval '1 ms' from reactor.workers", later
                )
            )
            assert not pod.events("heartbeat failed")
            pod.end()
