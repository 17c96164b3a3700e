"""The faults. Each is a function that begins when jobs are running, and returns when the fault is over."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from reactor.database.connection import connect
from reactor.database.migrate import migrate
from reactor.database.url import with_database
from reactor.embedded.account import server_account
from reactor.errors import ReactorError
from tests.chaos.world import RETURN_SECONDS, World
from tests.support.link import link_to
from tests.support.pgbouncer import Pooler
from tests.support.postgres import Postgres
from tests.support.until import until

LEASE_SECONDS = 8.0
BEYOND_THE_LEASE_SECONDS = 12.0
# No machine is so slow that a pod loses this one.
LONG_LEASE_SECONDS = 60.0


async def _start_two_pods(world: World) -> None:
    await world.start_pod()
    await world.start_pod()


@dataclass(frozen=True)
class Fault:
    happen: Callable[[World], Awaitable[None]]
    start: Callable[[World], Awaitable[None]] = _start_two_pods
    """Starts the pods."""
    kills_handlers: bool = False
    """Some attempts die with their process, and may be charged. Otherwise each job has a single attempt to use."""
    lease_seconds: float = LONG_LEASE_SECONDS
    longest_job_seconds: float = 3.0
    is_short: bool = False
    """Part of `make chaos SHORT=1`."""
    needs_small_disk: bool = False

    @property
    def name(self) -> str:
        return self.happen.__name__


# The server


async def crash_loop(world: World) -> None:
    """Immediate stops, and SIGKILL for the postmaster and for a backend."""
    for number in range(4):
        if number % 2:
            await world.postgres.kill()
        else:
            await world.postgres.stop("immediate")
        await world.postgres.start()
        await asyncio.sleep(1)
        pid = await world.fetchval(_BACKEND_OF.format("pod-1"))
        if isinstance(pid, int):
            os.kill(pid, signal.SIGKILL)
        await world.progresses()


_BACKEND_OF = (
    "select pid from pg_stat_activity where application_name like 'reactor% {}' and backend_type = 'client backend' "
    "order by random() limit 1"
)


async def asynchronous_failover(world: World) -> None:
    """The standby misses what the primary confirmed last. So do its jobs and their data: neither exists."""
    async with link_to(world.postgres.port) as replication:
        standby = await world.postgres.standby(world.folder / "standby", replication.port)
        world.resources.push_async_callback(standby.stop, "immediate")
        await world.progresses()
        replication.hold("up", "down")
        await asyncio.sleep(1.5)
        await _fail_over(world, standby)
    async with connect(world.url, name="test") as connection:
        rows = await connection.fetch("select distinct pipeline_id from reactor.jobs")
    lost = world.workload.acknowledged - {row["pipeline_id"] for row in rows}
    assert lost, "the standby was not behind"
    world.workload.acknowledged -= lost
    # A job whose claim is missing may start again beside its first attempt, until the pods have compared their claims.
    await world.progresses()
    world.since = time.monotonic()


async def synchronous_failover(world: World) -> None:
    """With synchronous_commit = remote_apply the standby has everything that was confirmed."""
    standby = await world.postgres.standby(
        world.folder / "standby", world.postgres.port, synchronous_standby_names="", synchronous_commit="on"
    )
    world.resources.push_async_callback(standby.stop, "immediate")
    async with connect(world.url, name="test") as connection:
        await connection.execute("alter system set synchronous_standby_names = 'standby'")
        await connection.execute("alter system set synchronous_commit = 'remote_apply'")
        await connection.execute("select pg_reload_conf()")

        async def is_synchronous() -> object:
            return await connection.fetchval(
                "select exists (select from pg_stat_replication where sync_state = 'sync')"
            )

        await until(is_synchronous)
    await world.progresses()
    await _fail_over(world, standby)


async def _fail_over(world: World, standby: Postgres) -> None:
    await world.postgres.stop("immediate")
    await standby.promote()
    world.postgres = standby
    for link in world.links:
        link.upstream = standby.port
    world.workload.url = world.url


async def full_disk(world: World) -> None:
    """For as long as the pods take to notice, and six seconds more."""
    ballast = world.postgres.data / "ballast"
    with suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(b"\0" * 8192)
    await until(lambda: _is_full(world))
    await asyncio.sleep(6)
    ballast.unlink()
    # A server that can't write its WAL ends.
    if not await world.fetchval("select true"):
        await world.postgres.stop("immediate")
        await world.postgres.start()


async def _is_full(world: World) -> bool:
    """A table that grows is refused, or the server has ended."""
    try:
        async with connect(world.url, name="test") as connection:
            await connection.execute("create table filler as select repeat('x', 1000) from generate_series(1, 10000)")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ReactorError):
        return True
    return False


async def read_only_server(world: World) -> None:
    async with connect(world.url, name="test") as connection:
        await connection.execute("set default_transaction_read_only = off")
        await connection.execute("alter system set default_transaction_read_only = on")
        await connection.execute("select pg_reload_conf()")
        await asyncio.sleep(8)
        await connection.execute("alter system reset default_transaction_read_only")
        await connection.execute("select pg_reload_conf()")


async def locked_jobs(world: World) -> None:
    """As by a change of the schema."""
    await _lock_table(world, "jobs")


async def locked_workers(world: World) -> None:
    """No lease can be renewed."""
    await _lock_table(world, "workers")


async def _lock_table(world: World, table: str) -> None:
    async with connect(world.url, name="test") as connection, connection.transaction():
        await connection.execute(f"lock table reactor.{table} in access exclusive mode")
        await asyncio.sleep(BEYOND_THE_LEASE_SECONDS)


async def frozen_backends(world: World) -> None:
    """All sessions of one pod."""
    async with connect(world.url, name="test") as connection:
        rows = await connection.fetch(
            "select pid from pg_stat_activity where application_name like 'reactor% pod-1' "
            "and backend_type = 'client backend'"
        )
    await _freeze([row["pid"] for row in rows], BEYOND_THE_LEASE_SECONDS)


async def dump_and_restore(world: World) -> None:
    """The pods move to a copy of the database as it was at the dump. What happened later has not happened there."""
    dump = world.folder / "dump"
    dump.mkdir()
    server_account().take_ownership(dump)
    confirmed = set(world.workload.acknowledged)
    await world.postgres.run("pg_dump", "-Fc", "-f", str(dump / "jobs"), "-d", world.url)
    await world.stop_submitting()
    for pod in world.pods:
        pod.end()
    async with connect(world.url, name="test") as connection:
        await connection.execute("create database restored")
    restored = with_database(world.url, "restored")
    await world.postgres.run("pg_restore", "-d", restored, str(dump / "jobs"))
    await migrate(restored)
    world.database = "restored"
    async with connect(world.url, name="test") as connection:
        rows = await connection.fetch("select id from reactor.jobs where state = 'running'")
    world.excused = {row["id"] for row in rows}  # their pods did not survive
    world.workload.acknowledged = confirmed
    world.workload.url = world.url
    await _start_two_pods(world)
    await world.begin(seconds=0.1)


# The network


async def outage_beyond_the_lease(world: World) -> None:
    """No pod reaches the server. All pods survive."""
    for link in world.links:
        link.refuse()
    await asyncio.sleep(BEYOND_THE_LEASE_SECONDS)
    for link in world.links:
        link.heal()


async def _partition(world: World, *directions: str) -> None:
    world.links[0].hold(*directions)
    await asyncio.sleep(BEYOND_THE_LEASE_SECONDS)
    world.links[0].heal()


async def nothing_reaches_the_server(world: World) -> None:
    await _partition(world, "up")


async def nothing_reaches_one_pod(world: World) -> None:
    await _partition(world, "down")


async def nothing_passes_in_either_direction(world: World) -> None:
    await _partition(world, "up", "down")


async def latency_and_loss(world: World) -> None:
    """50 ms in each direction, and one of fifty packets lost in each, from the start of the pods on."""
    for _ in range(3):
        await world.progresses()


async def _start_in_namespaces(world: World) -> None:
    world.workload.pause_seconds = 1.0
    for number in (1, 2):
        host = _make_namespace(world, number)
        await world.start_pod(host=host, prefix=["ip", "netns", "exec", _namespace(number)])
        world.links[-1].latency_seconds = 0.05


def _namespace(number: int) -> str:
    return f"chaos-{os.getpid()}-{number}"


def _make_namespace(world: World, number: int) -> str:
    """Returns the address of this machine as the namespace sees it."""
    iptables = shutil.which("iptables") or shutil.which("iptables", path="/usr/sbin:/sbin")
    if os.geteuid() != 0 or not shutil.which("ip") or not iptables:
        pytest.skip("network namespaces need root, and iproute2 and iptables: apt-get install iproute2 iptables")
    name, ours, theirs = _namespace(number), f"ch{os.getpid() % 10**6}h{number}", f"ch{os.getpid() % 10**6}n{number}"
    subnet = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    host, inside = f"{subnet}.{4 * number + 1}", f"{subnet}.{4 * number + 2}"
    _run("ip", "netns", "add", name)
    world.resources.callback(_run, "ip", "netns", "del", name)
    _run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
    _run("ip", "addr", "add", f"{host}/30", "dev", ours)
    _run("ip", "link", "set", ours, "up")
    within = ("ip", "netns", "exec", name)
    _run(*within, "ip", "addr", "add", f"{inside}/30", "dev", theirs)
    _run(*within, "ip", "link", "set", theirs, "up")
    for chain in ("INPUT", "OUTPUT"):
        rule = ("-m", "statistic", "--mode", "random", "--probability", "0.02", "-j", "DROP")
        _run(*within, iptables, "-A", chain, "-p", "tcp", *rule)
    return host


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")


async def _start_behind_a_pooler(world: World) -> None:
    world.pooler = Pooler(world.folder, world.postgres.port)
    world.resources.callback(world.pooler.end)
    await world.pooler.start()
    for _ in range(2):
        await world.start_pod(url=world.postgres.url(port=world.pooler.port))


async def restarted_pooler(world: World) -> None:
    """pgbouncer in transaction mode dies and returns, and so does the server behind it."""
    assert world.pooler
    await world.pooler.restart()
    await world.progresses()
    await world.postgres.stop("immediate")
    await world.postgres.start()


# The pods


async def frozen_supervisor(world: World) -> None:
    """Its worker process goes on, and stops before other pods may take its jobs."""
    await _freeze([world.pods[0].process.pid], BEYOND_THE_LEASE_SECONDS)


async def frozen_worker(world: World) -> None:
    """Its supervisor goes on."""
    await _freeze(world.pods[0].workers, BEYOND_THE_LEASE_SECONDS)


async def _freeze(pids: list[int], seconds: float) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def poisoned_processes(world: World) -> None:
    """A job whose process dies after its handler has returned. It fails, and the other jobs are not charged."""
    async with connect(world.url, name="test") as connection:
        await connection.execute("insert into reactor.jobs (job_type, max_attempts) values ('poison', 1)")
    failed = "select count(*) = 1 from reactor.jobs where job_type = 'poison' and state = 'failed'"
    await until(lambda: world.fetchval(failed), RETURN_SECONDS)


async def clocks_that_jump(world: World) -> None:
    """The clocks of the pods differ by two hours, and change places."""
    for ahead, behind in ((2, 1), (1, 2)):
        _set_clock(world, ahead, "+1h")
        _set_clock(world, behind, "-1h")
        for _ in range(3):
            await world.progresses()


def _set_clock(world: World, number: int, offset: str) -> None:
    new = world.scratch / f"clock-{number}.new"
    new.write_text(offset)
    new.rename(world.scratch / f"clock-{number}")


async def _start_with_clocks(world: World) -> None:
    [*libraries] = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    if not libraries:
        pytest.skip("there is no libfaketime: apt-get install faketime")
    for number in (1, 2):
        _set_clock(world, number, "+0")
        await world.start_pod(
            LD_PRELOAD=str(libraries[0]),
            FAKETIME_TIMESTAMP_FILE=str(world.scratch / f"clock-{number}"),
            FAKETIME_NO_CACHE="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",  # no kernel sets that one
            DONT_FAKE_MONOTONIC="1",
        )


_LONG_JOBS = BEYOND_THE_LEASE_SECONDS + 3
FAULTS = [
    Fault(crash_loop, is_short=True),
    Fault(asynchronous_failover, longest_job_seconds=10),
    Fault(synchronous_failover, longest_job_seconds=10),
    Fault(outage_beyond_the_lease, lease_seconds=LEASE_SECONDS, longest_job_seconds=_LONG_JOBS, is_short=True),
    Fault(locked_jobs, lease_seconds=LEASE_SECONDS, longest_job_seconds=_LONG_JOBS),
    Fault(locked_workers, lease_seconds=LEASE_SECONDS, longest_job_seconds=_LONG_JOBS),
    *(
        Fault(happen, lease_seconds=LEASE_SECONDS, longest_job_seconds=_LONG_JOBS, kills_handlers=True)
        for happen in (
            nothing_reaches_the_server,
            nothing_reaches_one_pod,
            nothing_passes_in_either_direction,
            frozen_worker,
            frozen_backends,
        )
    ),
    Fault(
        frozen_supervisor,
        lease_seconds=LEASE_SECONDS,
        longest_job_seconds=_LONG_JOBS,
        kills_handlers=True,
        is_short=True,
    ),
    Fault(poisoned_processes),
    Fault(full_disk, needs_small_disk=True),
    Fault(read_only_server, is_short=True),
    Fault(restarted_pooler, start=_start_behind_a_pooler),
    Fault(dump_and_restore, kills_handlers=True, lease_seconds=LEASE_SECONDS),
    Fault(clocks_that_jump, start=_start_with_clocks),
    Fault(latency_and_loss, start=_start_in_namespaces),
]
