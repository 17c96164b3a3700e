"""Recurring jobs run once per tick, with any number of pods and despite failures."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import asyncpg
import pytest

from reactor import Job, Registry, ScheduleOptions
from reactor.database.connection import Connection, connect
from reactor.errors import ScheduleInvalid, ScheduleTwice, ScheduleUnknown
from reactor.operate.audit import Operator
from reactor.operate.schedules import disable, enable, list_schedules, remove, run
from reactor.pod.in_process import Reactor
from reactor.schedules.cron import parse_timing
from reactor.schedules.declaration import Schedule, declare
from reactor.schedules.run_due import plan_ticks, run_due
from tests.support.until import until

ANNE = Operator("anne", "test")
START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    return registry


async def write(connection: Connection, name: str = "s", **columns: Any) -> None:
    columns = {"name": name, "job_type": "work"} | columns
    if not columns.keys() & {"cron", "every"}:
        columns["every"] = HOUR
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    await connection.execute(
        f"insert into reactor.schedules ({', '.join(columns)}) values ({places})", *columns.values()
    )


async def read(connection: Connection, name: str = "s") -> dict[str, Any]:
    found = await connection.fetchrow("select * from reactor.schedules where name = $1", name)
    assert found
    return dict(found)


async def jobs(connection: Connection, name: str = "s") -> list[dict[str, Any]]:
    statement = "select * from reactor.jobs where 'schedule:' || $1 = any (tags) order by id"
    return [dict(record) for record in await connection.fetch(statement, name)]


async def make_due(connection: Connection, name: str = "s", ago: timedelta = timedelta(0)) -> datetime:
    """Sets the schedule's next tick to the present."""
    statement = (
        "update reactor.schedules set next_run_at = clock_timestamp() - $2::interval "
        "where name = $1 returning next_run_at"
    )
    moment: datetime = await connection.fetchval(statement, name, ago)
    return moment


def tick_of(job: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(job["idempotency_key"].removeprefix("schedule:s:"))


# Planning ticks


def test_missed_ticks_run_once_in_total_or_once_each_with_catch_up() -> None:
    timing = parse_timing("0 * * * *", None, "UTC", START)
    due, now = START + HOUR, START + 5.5 * HOUR
    once = plan_ticks(timing, due, START, now, catch_up=False)
    assert (once.ticks, once.next) == ([START + 5 * HOUR], START + 6 * HOUR)
    each = plan_ticks(timing, due, START, now, catch_up=True)
    assert (each.ticks, each.next) == ([START + n * HOUR for n in range(1, 6)], START + 6 * HOUR)
    some = plan_ticks(timing, due, START, now, catch_up=True, max_ticks=2)
    assert (some.ticks, some.next) == ([START + HOUR, START + 2 * HOUR], START + 3 * HOUR), "the rest is still due"


# Once per tick


async def test_a_new_schedule_waits_for_its_first_tick(connection: Connection) -> None:
    await write(connection)
    assert 3500 < await run_due(connection) <= 3600
    row = await read(connection)
    assert row["next_run_at"] == row["created_at"] + HOUR
    assert await jobs(connection) == []


async def test_a_tick_submits_the_job_of_the_schedule(connection: Connection) -> None:
    options: dict[str, Any] = {
        "queue": "q",
        "priority": 5,
        "scope": "x",
        "exclusive": True,
        "tags": ["t"],
        "max_attempts": 7,
    }
    await write(connection, payload='{"a": 1}', timeout_seconds=9, **options)
    due = await make_due(connection)
    assert await run_due(connection) > 0
    [job] = await jobs(connection)
    names = (
        "job_type",
        "payload",
        "queue",
        "priority",
        "scope",
        "exclusive",
        "tags",
        "max_attempts",
        "timeout_seconds",
    )
    assert [job[name] for name in names] == ["work", '{"a": 1}', "q", 5, "x", True, ["t", "schedule:s"], 7, 9]
    assert job["submitted_by"] == "schedule s"
    assert job["idempotency_key"] == f"schedule:s:{due.astimezone(UTC).isoformat()}"
    row = await read(connection)
    assert (row["last_run_at"], row["last_job_id"], row["error"]) == (due, job["id"], None)
    assert row["next_run_at"] == row["created_at"] + HOUR


async def test_ten_pods_at_once_run_each_tick_once(database: str, connection: Connection) -> None:
    """Guarantee: of any number of pods, one inserts the job. Fifty schedules make the pods conflict.

    The index of idempotency keys, a second safeguard, is dropped because it would hide errors of the first.
    """
    await connection.execute("drop index reactor.jobs_idempotency_key_is_taken")
    for number in range(50):
        await write(connection, f"s{number}")
    async with AsyncExitStack() as stack:
        pods = [await stack.enter_async_context(connect(database, name=f"pod {n}")) for n in range(10)]
        for turn in range(1, 6):
            await connection.execute("update reactor.schedules set next_run_at = clock_timestamp()")

            async def until_done(pod: Connection) -> None:
                while await run_due(pod) < 2:
                    pass

            await asyncio.gather(*map(until_done, pods))
            counts = await connection.fetch("select tags, count(*) from reactor.jobs group by tags")
            assert [record["count"] for record in counts] == [turn] * 50


async def test_a_pod_killed_between_the_insert_and_the_update_neither_loses_nor_repeats_the_tick(
    database: str, connection: Connection
) -> None:
    await write(connection)
    await connection.execute(
        # Without this, the lock timeout of run_due would end the transaction first.
        "create function hold() returns trigger language plpgsql set lock_timeout = 0 as "
        "$$ begin perform pg_advisory_xact_lock(1); return new; end $$;"
        "create trigger hold before update of last_run_at on reactor.schedules for each row execute function hold();"
    )
    due = await make_due(connection)
    async with connect(database, name="holder") as holder, connect(database, name="victim") as victim:
        await holder.execute("select pg_advisory_lock(1)")
        dying = asyncio.create_task(run_due(victim))
        its_session = "from pg_stat_activity where application_name = 'victim' and datname = current_database()"
        await until(lambda: connection.fetchval(f"select wait_event_type = 'Lock' {its_session}"))
        assert await run_due(connection) == 1.0, "locked by another pod: retry soon"
        await connection.execute(f"select pg_terminate_backend(pid) {its_session}")
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await dying
        # The client is disconnected before the session releases its locks.
        await until(lambda: connection.fetchval(f"select not exists (select {its_session})"))
        assert await jobs(connection) == []
        await holder.execute("select pg_advisory_unlock(1)")
    assert await run_due(connection) > 1
    assert [job["idempotency_key"] for job in await jobs(connection)] == [
        f"schedule:s:{due.astimezone(UTC).isoformat()}"
    ]
    assert await run_due(connection) > 1
    assert len(await jobs(connection)) == 1


async def test_setting_next_run_at_back_repeats_no_tick(connection: Connection) -> None:
    """Even if the job's key is free again, because it was cancelled, pruned, or is older than the window."""
    await write(connection)
    due = await make_due(connection)
    await run_due(connection)
    for tamper in ("select", "update reactor.jobs set idempotency_key = null"):
        await connection.execute(tamper)
        await connection.execute("update reactor.schedules set next_run_at = $1", due - timedelta(days=3))
        assert await run_due(connection) > 1
        assert len(await jobs(connection)) == 1
    row = await read(connection)
    assert row["next_run_at"] == row["created_at"] + HOUR


async def test_a_tick_of_a_reset_row_is_recognized_by_its_key(connection: Connection) -> None:
    """For example after restoring a backup of the table: within the window, the key identifies the tick."""
    await write(connection)
    due = await make_due(connection)
    await run_due(connection)
    [job] = await jobs(connection)
    await connection.execute(
        "update reactor.schedules set next_run_at = $1, last_run_at = null, last_job_id = null", due
    )
    await run_due(connection)
    assert [job["id"] for job in await jobs(connection)] == [job["id"]]
    assert (await read(connection))["last_job_id"] == job["id"]


# Missed ticks


async def test_after_a_gap_a_schedule_runs_once(connection: Connection) -> None:
    await write(connection, cron="* * * * *")
    await make_due(connection, ago=timedelta(days=60))
    assert 0 < await run_due(connection) <= 60
    assert len(await jobs(connection)) == 1
    row = await read(connection)
    assert row["next_run_at"] - row["last_run_at"] == timedelta(minutes=1), "it is the job of the newest tick"


async def test_with_catch_up_every_missed_tick_runs_in_bounded_transactions(connection: Connection) -> None:
    await write(connection, every=timedelta(minutes=1), catch_up=True)
    await connection.execute(
        "update reactor.schedules set created_at = created_at - interval '250 minutes 30 seconds', "
        "next_run_at = created_at - interval '249 minutes 30 seconds'"
    )
    assert await run_due(connection) == 0, "more ticks are due"
    assert len(await jobs(connection)) == 100
    while await run_due(connection) == 0:
        pass
    made = await jobs(connection)
    row = await read(connection)
    expected = [row["created_at"].astimezone(UTC) + timedelta(minutes=n) for n in range(1, 251)]
    assert [job["idempotency_key"] for job in made] == [f"schedule:s:{moment.isoformat()}" for moment in expected]
    assert row["next_run_at"] == row["created_at"] + timedelta(minutes=251)


async def test_ticks_missed_while_disabled_are_skipped(connection: Connection) -> None:
    await write(connection, catch_up=True)
    await make_due(connection, ago=10 * HOUR)
    assert await disable(connection, "s", ANNE)
    assert await run_due(connection) == float("inf")
    assert not await enable(connection, "s", ANNE)
    assert await run_due(connection) > 3000
    assert await jobs(connection) == []


async def test_an_exclusive_schedule_skips_a_tick_while_its_job_is_unfinished(connection: Connection) -> None:
    await write(connection, scope="x", exclusive=True)
    for _ in range(3):
        await make_due(connection)
        await run_due(connection)
    [job] = await jobs(connection)
    await connection.execute("select reactor.cancel($1, 'x')", [job["id"]])
    await make_due(connection)
    await run_due(connection)
    assert len(await jobs(connection)) == 2


async def test_an_open_transaction_on_an_exclusive_scope_blocks_one_schedule_only(
    database: str, connection: Connection
) -> None:
    await write(connection, "a", scope="x", exclusive=True)
    await write(connection, "b")
    async with connect(database, name="producer") as producer, producer.transaction():
        await producer.execute("insert into reactor.jobs (job_type, scope, exclusive) values ('work', 'x', true)")
        await make_due(connection, "a")
        await make_due(connection, "b")
        assert await run_due(connection) == 1.0
        assert (len(await jobs(connection, "a")), len(await jobs(connection, "b"))) == (0, 1)
        await producer.execute("delete from reactor.jobs where scope = 'x'")
    await run_due(connection)
    assert len(await jobs(connection, "a")) == 1


# Invalid schedules


async def test_an_invalid_schedule_is_reported_and_does_not_stop_others(connection: Connection) -> None:
    await write(connection, "bad cron", cron="61 * * * *")
    await write(connection, "bad zone", cron="0 3 * * *", timezone="Mars/Olympus")
    await write(connection, "good", cron="* * * * *")
    assert 0 < await run_due(connection) <= 60
    listed = {schedule["name"]: schedule["error"] for schedule in await list_schedules(connection)}
    assert "Bad minute" in listed["bad cron"]
    assert "'Mars/Olympus'" in listed["bad zone"]
    assert listed["good"] is None
    await connection.execute("update reactor.schedules set timezone = 'Europe/Zurich' where name = 'bad zone'")
    await run_due(connection)
    row = await read(connection, "bad zone")
    assert row["error"] is None
    assert row["next_run_at"] is not None


async def test_a_starting_worker_rereads_invalid_schedules(connection: Connection) -> None:
    """The new process may know more time zones."""
    await write(connection, cron="0 3 * * *", timezone="Mars/Olympus")
    await run_due(connection)
    assert (await read(connection))["error"]
    await declare(connection, [])
    assert (await read(connection))["error"] is None


async def test_a_refused_job_is_reported_and_does_not_stop_others(connection: Connection) -> None:
    await connection.execute(
        "create function no() returns trigger language plpgsql as $$ begin raise exception 'not today'; end $$;"
        "create trigger no before insert on reactor.jobs for each row when (new.queue = 'no') execute function no();"
    )
    await write(connection, "a", queue="no")
    await write(connection, "b")
    for _ in range(2):
        await make_due(connection, "a")
        await make_due(connection, "b")
        assert await run_due(connection) > 1
        row = await read(connection, "a")
        assert "not today" in row["error"]
        assert row["next_run_at"] is not None, "the next tick is tried"
    assert len(await jobs(connection, "b")) == 2
    await connection.execute("drop trigger no on reactor.jobs")
    await make_due(connection, "a")
    await run_due(connection)
    assert (await read(connection, "a"))["error"] is None


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"every": timedelta(milliseconds=1)}, "can't run every"),
        ({"every": HOUR, "cron": "0 3 * * *"}, "either cron or every"),
        ({"exclusive": True}, "no scope"),
        ({"name": " "}, "not a valid job_type, queue or schedule name"),
        ({"tags": ["t"] * 50}, "too many tags"),
    ],
)
async def test_the_table_refuses_invalid_schedules(connection: Connection, columns: dict[str, Any], why: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=why):
        await write(connection, **columns)


async def test_the_table_refuses_intervals_of_months(connection: Connection) -> None:
    """They have no fixed length; Python would read them as 30 days."""
    with pytest.raises(asyncpg.CheckViolationError, match="can't run every 1 mon"):
        await connection.execute("insert into reactor.schedules (name, job_type, every) values ('s', 'a', '1 month')")


# Declarations in code


async def test_declared_schedules_are_written_once_and_keep_the_operators_changes(
    connection: Connection, registry: Registry
) -> None:
    registry.schedule("nightly", "work", cron="0 3 * * *", timezone="Europe/Zurich", payload={"a": 1}, tags=["t"])
    registry.schedule("often", "work", every=timedelta(minutes=5), scope="x", exclusive=True)
    await declare(connection, registry.schedules)
    await run_due(connection)
    await disable(connection, "nightly", ANNE)
    version = "select array_agg(xmin::text order by name) from reactor.schedules"
    before = await connection.fetchval(version)
    await declare(connection, registry.schedules)
    assert await connection.fetchval(version) == before, "nothing is written without a difference"
    changed = Registry()
    changed.schedule("nightly", "work", cron="0 4 * * *", timezone="Europe/Zurich")
    await declare(connection, changed.schedules)
    row = await read(connection, "nightly")
    assert (row["cron"], row["enabled"], row["next_run_at"], row["payload"]) == ("0 4 * * *", False, None, "{}")
    often = await read(connection, "often")
    assert (often["every"], often["scope"], often["exclusive"]) == (timedelta(minutes=5), "x", True)
    assert often["next_run_at"] is not None, "a schedule that is no longer declared is kept"


def test_the_options_are_the_optional_fields_of_a_schedule() -> None:
    fields = get_type_hints(Schedule)
    assert get_type_hints(ScheduleOptions) == {
        name: fields[name] for name in fields if name not in ("name", "job_type")
    }
    assert not ScheduleOptions.__required_keys__


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cron": "0 25 * * *"}, "'nightly' can't be used: '0 25 \\* \\* \\*' is not a cron expression"),
        ({"cron": "0 3 * * *", "timezone": "Zurich"}, "no time zone 'Zurich'"),
        ({"every": 0.1}, "too short"),
        ({}, "either cron or every"),
        ({"every": 60, "payload": {"a": object()}}, "not JSON serializable"),
        ({"every": 60, "exclusive": True}, "no scope"),
        ({"every": 60, "colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"every": 60, "priority": 5000}, "out of range"),
        ({"every": 60, "max_attempts": 0}, "max_attempts"),
        ({"every": 60, "timeout_seconds": 0}, "timeout_seconds"),
        ({"every": 60, "tags": ["t"] * 50}, "too many tags"),
        ({"every": 60, "queue": ""}, "'' is not a valid name"),
    ],
)
def test_an_invalid_declaration_is_refused_immediately(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ScheduleInvalid, match=why):
        Registry().schedule("nightly", "work", **options)


def test_a_schedule_name_must_be_unique() -> None:
    registry = Registry()
    registry.schedule("s", "work", every=60)
    with pytest.raises(ScheduleTwice):
        registry.schedule("s", "work", every=60)


# Pods


async def test_a_hand_written_row_is_noticed_without_waiting_for_the_poll(
    database: str, connection: Connection, registry: Registry
) -> None:
    """A changed row too. Polling is off, so the notification does it."""
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        await write(connection)

        async def is_planned() -> bool:
            return (await read(connection))["next_run_at"] is not None

        await until(is_planned)
        await make_due(connection)

        async def has_run() -> bool:
            return [job["state"] for job in await jobs(connection)] == ["completed"]

        await until(has_run)


async def test_without_notifications_the_poll_finds_a_schedule(
    database: str, connection: Connection, registry: Registry
) -> None:
    await connection.execute("alter table reactor.schedules disable trigger after_write")
    async with Reactor(database, registry=registry, poll_seconds=0.3) as reactor:
        await until(lambda: reactor.is_well)
        await write(connection)
        await make_due(connection)
        await until(lambda: jobs(connection))


async def test_a_worker_wakes_up_at_each_tick(database: str, connection: Connection, registry: Registry) -> None:
    """Two pods without polling run one job every second, on time and not early.

    A machine that stalls for a second may miss a tick, so the test waits for three ticks in a row.
    """
    registry.schedule("s", "work", every=1)
    async with (
        Reactor(database, registry=registry, poll_seconds=0, pod="a") as reactor,
        Reactor(database, registry=registry, poll_seconds=0, pod="b"),
    ):
        await until(lambda: reactor.is_well)

        async def three_in_a_row() -> bool:
            made = [(tick_of(job), job["created_at"]) for job in await jobs(connection)]
            assert all(moment <= created for moment, created in made), "a job was early"
            assert len({moment for moment, _ in made}) == len(made), "a tick was repeated"
            on_time = {moment for moment, created in made if created - moment < SECOND}
            return any({moment, moment + SECOND, moment + 2 * SECOND} <= on_time for moment in on_time)

        await until(three_in_a_row)


async def test_a_pod_without_free_slots_still_runs_schedules(database: str, connection: Connection) -> None:
    """The submitted job is run by another pod."""
    registry, release = Registry(), asyncio.Event()

    @registry.register("work")
    async def work() -> None:
        await release.wait()

    async with Reactor(database, registry=registry, poll_seconds=0, concurrency=1) as reactor:
        await until(lambda: reactor.is_well)
        await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        await until(lambda: reactor.counts.claimed)
        await write(connection)
        await make_due(connection)
        await until(lambda: jobs(connection))
        release.set()


async def test_claims_continue_if_schedules_can_not_be_run(
    database: str, connection: Connection, registry: Registry
) -> None:
    await connection.execute("alter table reactor.schedules rename column enabled to disabled")
    async with Reactor(database, registry=registry, poll_seconds=0.2) as reactor:
        await until(lambda: reactor.is_well)
        await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        await until(lambda: reactor.counts.ended)
    await connection.execute("alter table reactor.schedules rename column disabled to enabled")


async def test_a_worker_process_saves_and_runs_the_schedules_of_its_app(
    connection: Connection, start_pod: Callable[..., Awaitable[Any]]
) -> None:
    """A worker with --once writes them too, but runs no ticks."""
    pod = await start_pod("--app=pod_schedules", "--once", ready=False)
    assert await pod.exit_code() == 0
    assert (await read(connection))["next_run_at"] is None
    await start_pod("--app=pod_schedules", "--processes=2", POLL_SECONDS=0)

    async def has_run() -> bool:
        return "completed" in [job["state"] for job in await jobs(connection)]

    await until(has_run)


# Operators


async def test_actions_on_schedules_are_audited(connection: Connection) -> None:
    await write(connection)
    await disable(connection, "s", ANNE)
    job_id, outcome = await run(connection, "s", ANNE)
    assert (outcome, [job["id"] for job in await jobs(connection)]) == ("created", [job_id])
    assert (await read(connection))["last_run_at"] is None, "a manual run is not a tick"
    await enable(connection, "s", ANNE)
    await remove(connection, "s", ANNE)
    for act in (enable, disable, remove, run):
        with pytest.raises(ScheduleUnknown, match="There is no schedule 's'"):
            await act(connection, "s", ANNE)
    notes = await connection.fetch("select what, target, who, details from reactor.audit order by id")
    assert [note["what"] for note in notes[:4]] == [
        "schedule disable",
        "schedule run",
        "schedule enable",
        "schedule remove",
    ]
    assert len(notes) == 8
    assert all("There is no schedule" in note["details"] for note in notes[4:])
    assert {(note["who"], note["target"]) for note in notes} == {("anne", "s")}


async def test_the_worker_role_may_manage_schedules(connection: Connection, registry: Registry) -> None:
    registry.schedule("s", "work", every=60)
    await connection.execute("set role reactor_worker")
    await declare(connection, registry.schedules)
    await make_due(connection)
    await run_due(connection)
    await disable(connection, "s", ANNE)
    await run(connection, "s", ANNE)
    await remove(connection, "s", ANNE)
    await connection.execute("reset role")
