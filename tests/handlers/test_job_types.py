"""What a worker publishes of its handlers."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from reactor import Job, Reactor, Registry
from reactor.database.connection import Connection, connect
from reactor.handlers.job_types import MAX_SCHEMA_BYTES, publish_job_types
from reactor.lifecycle.lease import Worker, register_worker
from reactor.testing import run_until_idle
from tests.support.jobs import insert
from tests.support.logs import Events
from tests.support.pods import StartPod
from tests.support.until import until


class Ingest(BaseModel):
    file: str
    rows: int = 0


class Unknown:
    """Of no JSON type."""


class Opaque(BaseModel):
    model_config = {"arbitrary_types_allowed": True}

    thing: Unknown


class Broken(BaseModel):
    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        return {"default": float("nan")}


class Large(BaseModel):
    model_config = {"json_schema_extra": {"x": "x" * MAX_SCHEMA_BYTES}}


async def publish(connection: Connection, registry: Registry) -> dict[str, dict[str, Any]]:
    """The rows that a worker with these handlers publishes."""
    worker = Worker("pod", registry.job_types)
    await register_worker(connection, worker, 600)
    await publish_job_types(connection, worker.id, registry)
    return {row["name"]: dict(row) for row in await connection.fetch("select * from reactor.job_types")}


async def test_a_type_is_published_with_its_defaults_and_the_schema_of_its_payload(
    connection: Connection, registry: Registry
) -> None:
    """F1, F13"""

    @registry.register("csv_ingest", max_attempts=5, timeout_seconds=1.5, delivery="at_most_once")
    async def csv_ingest(job: Job, payload: Ingest) -> None:
        """Reads a file.

        And more.
        """

    @registry.register("plain", max_attempts=10**12, timeout_seconds=1e300)
    def plain(payload: dict[str, Any]) -> None: ...

    @registry.register("loose", check_payload=False)
    async def loose(payload: Ingest) -> None: ...

    rows = await publish(connection, registry)
    found = rows["csv_ingest"]
    assert (found["max_attempts"], found["timeout_seconds"], found["delivery"]) == (5, 1.5, "at_most_once")
    assert (found["description"], found["is_checked"], found["queue"]) == ("Reads a file.", True, None)
    assert json.loads(found["payload_schema"]) == Ingest.model_json_schema()
    assert (rows["plain"]["payload_schema"], rows["plain"]["description"]) == (None, None)
    assert (rows["loose"]["is_checked"], rows["loose"]["version"]) == (False, "")
    assert json.loads(rows["loose"]["payload_schema"]) == Ingest.model_json_schema()
    assert "reactor.prune" in rows


@pytest.mark.parametrize("model", [Opaque, Broken, Large])
async def test_a_model_without_a_usable_schema_stops_no_worker(
    connection: Connection, registry: Registry, model: type, events: Events
) -> None:
    async def handle(payload: Any) -> None:
        """\ud800\0 half a pair, and NUL."""

    handle.__annotations__["payload"] = model
    registry.register("odd")(handle)
    rows = await publish(connection, registry)
    assert rows["odd"]["payload_schema"] is None
    assert any("schema" in event["event"] and event["job_type"] == "odd" for event in events)


async def test_rows_that_stay_locked_are_reported_and_left(
    connection: Connection, registry: Registry, database: str, events: Events
) -> None:
    """The worker starts all the same."""

    @registry.register("calc")
    async def calc(payload: Ingest) -> None: ...

    await connection.execute(
        "insert into reactor.job_types (name, delivery, is_checked, version) values ('calc', 'at_least_once', true, '')"
    )
    async with connect(database, name="neighbour") as neighbour, neighbour.transaction():
        await neighbour.execute("select from reactor.job_types for update")
        rows = await publish(connection, registry)
    assert rows["calc"]["payload_schema"] is None
    assert [event["job_types"] for event in events if event["event"] == "job types not published"] == [["calc"]]


async def test_worker_processes_publish_when_they_start(start_pod: StartPod, connection: Connection) -> None:
    await start_pod("--queues", "default", "--processes", "2")
    rows = await connection.fetch("select name, queue, description from reactor.job_types")
    assert ("held", "default", "Ends when the test creates the file `let-go`.") in map(tuple, rows)

    async def versions() -> list[Any]:
        found = await connection.fetch("select schema_versions from reactor.workers")
        return [row["schema_versions"] for row in found if row["schema_versions"]]

    await until(lambda: versions(), 60)


async def test_an_embedded_reactor_publishes_and_a_test_run_does_not(
    database: str, connection: Connection, registry: Registry
) -> None:
    """run_until_idle runs the handlers of a test, which are no deployment."""

    @registry.register("calc")
    async def calc(payload: Ingest) -> None: ...

    await insert(connection, "calc", payload='{"file": "a"}')
    await run_until_idle(database, registry)
    assert await connection.fetchval("select count(*) from reactor.job_types") == 0
    async with Reactor(database, registry=registry):
        assert await connection.fetchval("select payload_schema is not null from reactor.job_types where name = 'calc'")
