"""`reactor doctor` reports problems, and none on a healthy setup."""

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate
from reactor.doctor import Finding, Level, Limits, diagnose
from reactor.embedded import start_embedded
from reactor.embedded.locate import Location
from tests.support.pooler import pooler

# Other tests keep the machine busy.
PATIENT = Limits(notification_seconds=20.0)
IMPATIENT = Limits(notification_seconds=0.2)


async def findings(
    url: str, listen_url: str = "", environment: Mapping[str, str] | None = None, limits: Limits = PATIENT
) -> dict[str, Finding]:
    location = Location(url, listen_url or url)
    return {finding.check: finding async for finding in diagnose(location, environment or {}, limits)}


async def test_a_healthy_database_has_no_problems(database: str) -> None:
    found = await findings(database)
    assert {finding.level for finding in found.values()} == {Level.OK}, found
    assert set(found) == {"server", "schema", "privileges", "clock", "pooler", "notifications", "vacuum", "handlers"}


async def test_ready_jobs_that_no_live_pod_can_run_are_a_warning(database: str, connection: Connection) -> None:
    """F13"""
    await connection.execute(
        "insert into reactor.job_types (name, delivery, is_checked, version) values ('csv_ingest', 'x', true, '')"
    )
    await connection.execute(
        "insert into reactor.jobs (job_type, queue) values ('csv_ingst', 'a'), ('csv_ingest', 'b')"
    )
    found = (await findings(database))["handlers"]
    assert found.level is Level.WARNING
    assert found.message == (
        "no live pod can run the ready jobs of these types: csv_ingst in the queue a, csv_ingest in the queue b. "
        "Did you mean csv_ingest?"
    )


async def test_a_missing_schema_is_a_problem(server: str) -> None:
    schema = (await findings(server))["schema"]
    assert (schema.level, schema.remedy) == (Level.PROBLEM, "Run `reactor migrate`.")


async def test_a_read_only_database_is_a_problem(database: str) -> None:
    server = (await findings(f"{database}&default_transaction_read_only=on"))["server"]
    assert server.level is Level.PROBLEM
    assert "default_transaction_read_only" in server.remedy


async def test_an_unreachable_server_is_the_only_finding() -> None:
    found = await findings("postgresql://u@127.0.0.1:1/x")
    assert list(found) == ["server"]
    assert found["server"].level is Level.PROBLEM


async def test_a_misspelt_setting_is_a_warning(database: str) -> None:
    found = await findings(database, environment={"REACTOR_QUEUE": "a"})
    assert (found["settings"].level, found["settings"].remedy) == (Level.WARNING, "Did you mean REACTOR_QUEUES?")


async def test_a_user_without_roles_is_a_problem(folder: Path) -> None:
    with start_embedded(folder, version=18, options={"fsync": "off"}) as server:
        await migrate(server.url())
        async with connect(server.url(), name="test") as admin:
            await admin.execute("create role stranger login; create role runner login in role reactor_worker")
        privileges = (await findings(server.url().replace("postgres@", "stranger@", 1)))["privileges"]
        assert privileges.level is Level.PROBLEM
        assert "grant reactor_worker to stranger" in privileges.remedy
        privileges = (await findings(server.url().replace("postgres@", "runner@", 1)))["privileges"]
        assert (privileges.level, "not migrate" in privileges.message) == (Level.OK, True)


async def test_a_clock_that_differs_is_a_warning(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 90)
    clock = (await findings(database))["clock"]
    assert clock.level is Level.WARNING
    seconds = re.search(r"clock is ([\d.]+) s behind", clock.message)
    assert seconds, clock.message
    assert float(seconds[1]) == pytest.approx(90, abs=5)  # the two clocks are read at different moments


async def test_sessions_that_hold_back_vacuum_are_named(database: str, connection: Connection) -> None:
    location, limits = Location(database, database), Limits(old_transaction_seconds=0.0)
    async with connection.transaction():
        await connection.execute("select 1")
        found = [finding async for finding in diagnose(location, {}, limits) if finding.check == "vacuum"]
    assert {finding.level for finding in found} == {Level.WARNING}
    [ours] = [one for one in found if f"session {connection.get_server_pid()} " in one.message]
    assert "(test, idle in transaction) has held back vacuum" in ours.message
    assert "pg_terminate_backend" in ours.remedy


async def test_lost_notifications_are_a_problem(database: str, server: str) -> None:
    """Notifications don't cross databases, so another database simulates a pooler that loses them."""
    found = await findings(database, listen_url=server, limits=IMPATIENT)
    assert found["notifications"].level is Level.PROBLEM


async def test_a_listener_behind_a_transaction_pooler_is_a_problem(database: str, folder: Path) -> None:
    async with pooler(database, folder) as pooled:
        found = await findings(pooled.url, limits=IMPATIENT)
    assert (found["pooler"].level, found["notifications"].level) == (Level.WARNING, Level.PROBLEM)
    assert "REACTOR_LISTEN_URL" in found["notifications"].remedy


async def test_a_pooler_is_detected(pooled: tuple[str, str]) -> None:
    through_pooler, direct = pooled
    found = await findings(through_pooler, limits=IMPATIENT)
    assert found["pooler"].level is Level.WARNING
    assert "REACTOR_LISTEN_URL" in found["pooler"].remedy
    found = await findings(through_pooler, listen_url=direct)
    assert (found["pooler"].level, found["notifications"].level) == (Level.OK, Level.OK)
