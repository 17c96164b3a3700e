"""Known job types: submissions that are checked, the setting that checks inserts, and two versions at the same time."""

import asyncio
import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from reactor.database import statements
from reactor.database.assets import folder
from reactor.database.connection import Connection, connect
from reactor.lifecycle.lease import Worker, register_worker, retire_worker

YEAR = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
TEXT = {"type": "object", "properties": {"year": {"type": "string"}}, "required": ["year"]}


def definition(name: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    facts = {"name": name, "delivery": "at_least_once", "is_checked": True, "payload_schema": schema}
    return facts | more


async def publish(connection: Connection, worker: Worker, *definitions: dict[str, Any]) -> list[str]:
    """The types that were left out."""
    rows = await connection.fetch(statements.PUBLISH_JOB_TYPES, worker.id, json.dumps(definitions))
    return [row["name"] for row in rows]


async def start(connection: Connection, *definitions: dict[str, Any], queues: tuple[str, ...] = ()) -> Worker:
    """A live worker that has published these types."""
    worker = Worker("pod", {one["name"]: None for one in definitions}, queues)
    await register_worker(connection, worker, 600)
    assert await publish(connection, worker, *definitions) == []
    return worker


async def submit(connection: Connection, *jobs: dict[str, Any], as_pipeline: bool = False) -> list[asyncpg.Record]:
    query = "select * from reactor.submit_checked($1, $2) order by place"
    return await connection.fetch(query, json.dumps(jobs), as_pipeline)


def job(payload: Any = None, job_type: str = "calc", **more: Any) -> dict[str, Any]:
    return {"job_type": job_type, "payload": payload} | more


async def stored(connection: Connection) -> int:
    count: int = await connection.fetchval("select count(*)::int from reactor.jobs")
    return count


@pytest.mark.parametrize("as_pipeline", [False, True])
async def test_a_payload_that_does_not_fit_is_an_outcome_and_nothing_is_inserted(
    connection: Connection, as_pipeline: bool
) -> None:
    """F1: the caller's transaction goes on."""
    await start(connection, definition("calc", YEAR))
    async with connection.transaction():
        rows = await submit(
            connection, job({"year": 1}), job({"year": "x"}), job(None), job({}, "other"), as_pipeline=as_pipeline
        )
        assert [(row["place"], row["id"], row["outcome"], row["field"], row["message"]) for row in rows] == [
            (2, None, "invalid", "payload.year", "must be an integer"),
            (3, None, "invalid", "payload.year", "is required"),
        ]
        assert await stored(connection) == 0
    assert [row["outcome"] for row in await submit(connection, job({"year": 1}))] == ["created"]


async def test_jobs_that_fit_are_inserted_in_their_order(connection: Connection) -> None:
    await start(connection, definition("calc", YEAR), definition("other"))
    rows = await submit(connection, *(job({"year": n}) for n in range(5)), job({"any": 1}, "other"))
    assert [(row["place"], row["outcome"], row["warning"]) for row in rows] == [
        (n, "created", None) for n in range(1, 7)
    ]
    payloads = await connection.fetch("select payload ->> 'year' as year from reactor.jobs order by id")
    assert [row["year"] for row in payloads] == ["0", "1", "2", "3", "4", None]
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)


@pytest.mark.parametrize("as_pipeline", [False, True])
async def test_a_repeated_idempotency_key_is_answered_before_the_payload_is_checked(
    connection: Connection, as_pipeline: bool
) -> None:
    first = await connection.fetchval(
        "insert into reactor.jobs (job_type, idempotency_key) values ('calc', 'k') returning id"
    )
    await start(connection, definition("calc", YEAR))
    [again] = await submit(connection, job({"year": "x"}, idempotency_key="k"), as_pipeline=as_pipeline)
    assert (again["outcome"], again["id"]) == ("existing", first)
    [other] = await submit(connection, job({"year": "x"}, idempotency_key="l"), as_pipeline=as_pipeline)
    assert other["outcome"] == "invalid"
    # A cancelled job releases its key, and a key does not last longer than the window.
    await connection.execute("update reactor.settings set idempotency_window = '0'")
    [late] = await submit(connection, job({"year": "x"}, idempotency_key="k"), as_pipeline=as_pipeline)
    assert late["outcome"] == "invalid"


async def test_a_type_without_a_schema_or_with_an_opt_out_takes_any_payload(connection: Connection) -> None:
    await start(connection, definition("plain"), definition("loose", YEAR, is_checked=False))
    rows = await submit(connection, job({"x": 1}, "plain"), job({"x": 1}, "loose"), job({"x": 1}, "unknown"))
    assert [row["outcome"] for row in rows] == ["created"] * 3
    await connection.execute("update reactor.settings set check_payloads = true")
    await connection.execute("insert into reactor.jobs (job_type) values ('plain'), ('loose'), ('unknown')")


async def test_new_jobs_that_no_live_worker_would_run_are_marked(connection: Connection) -> None:
    """F13: by the type, and by the queue; with the known types where the type was never seen."""
    here = await start(connection, definition("calc", YEAR), queues=("gpu",))
    rows = await submit(
        connection,
        job({"year": 1}, queue="gpu"),
        job({"year": 1}),
        job({}, "calk", queue="gpu"),
        job({}, "calk", queue="gpu"),
    )
    assert [(row["outcome"], row["warning"], row["known_types"]) for row in rows] == [
        ("created", None, None),
        ("created", "no_pod_for_queue", None),
        ("created", "no_handler", '["calc"]'),
        ("created", "no_handler", None),
    ]
    assert await connection.fetchval("select queue from reactor.job_types") == "gpu"
    await retire_worker(connection, here.id)
    [gone] = await submit(connection, job({"year": 1}, queue="gpu"))
    assert (gone["warning"], gone["known_types"]) == ("no_handler", None)


async def test_a_worker_whose_lease_is_over_runs_nothing(connection: Connection) -> None:
    worker = await start(connection, definition("calc"))
    await connection.execute("update reactor.workers set lease_until = now() where id = $1", worker.id)
    [row] = await submit(connection, job())
    assert row["warning"] == "no_handler"


# Two versions


async def test_while_two_versions_are_live_a_payload_that_either_accepts_is_accepted(connection: Connection) -> None:
    """F1: in a rolling deploy, and for as long as a worker of the earlier version lives."""
    old = await start(connection, definition("calc", YEAR))
    new = await start(connection, definition("calc", TEXT))

    async def outcomes() -> list[str]:
        return [(await submit(connection, job({"year": year})))[0]["outcome"] for year in (1, "x", None)]

    assert await outcomes() == ["created", "created", "invalid"]
    # A worker process of the old version restarts, and publishes again.
    again = await start(connection, definition("calc", YEAR))
    assert await outcomes() == ["created", "created", "invalid"]
    await start(connection, definition("calc", TEXT))
    for worker in (old, again):
        await retire_worker(connection, worker.id)
    assert await outcomes() == ["invalid", "created", "invalid"]
    assert await publish(connection, new, definition("calc", TEXT)) == []


async def test_an_earlier_version_without_a_schema_accepts_everything_while_it_lives(connection: Connection) -> None:
    old = await start(connection, definition("calc"))
    await start(connection, definition("calc", YEAR))
    assert (await submit(connection, job({})))[0]["outcome"] == "created"
    await retire_worker(connection, old.id)
    assert (await submit(connection, job({})))[0]["outcome"] == "invalid"


async def test_the_schemas_of_versions_that_have_gone_are_forgotten_at_the_next_deploy(connection: Connection) -> None:
    """Otherwise a row would grow with each deploy."""
    for number in range(5):
        worker = await start(connection, definition("calc", YEAR | {"title": str(number)}))
        if number < 4:
            await retire_worker(connection, worker.id)
    assert await connection.fetchval("select earlier_schemas from reactor.job_types") == "{}"
    await start(connection, definition("calc", TEXT))
    kept = json.loads(await connection.fetchval("select earlier_schemas from reactor.job_types"))
    assert list(kept.values()) == [YEAR | {"title": "4"}]


# Publishing


async def row_version(connection: Connection, name: str) -> Any:
    return await connection.fetchval("select xmin::text from reactor.job_types where name = $1", name)


async def test_what_has_not_changed_is_not_written_again(connection: Connection) -> None:
    """Many pods start at the same time."""
    worker = await start(connection, definition("calc", YEAR), definition("other"))
    before = [await row_version(connection, name) for name in ("calc", "other")]
    await start(connection, definition("calc", YEAR), definition("other"))
    await connection.execute(statements.SEE_JOB_TYPES, 86400.0)
    assert [await row_version(connection, name) for name in ("calc", "other")] == before
    await publish(connection, worker, definition("calc", YEAR), definition("other", description="new"))
    assert await row_version(connection, "calc") == before[0]
    assert await row_version(connection, "other") != before[1]


async def test_publishing_waits_for_no_row_that_another_transaction_has_locked(
    connection: Connection, database: str
) -> None:
    """It returns what is left to do."""
    worker = await start(connection, definition("calc", YEAR), definition("other"))
    async with connect(database, name="neighbour") as neighbour, neighbour.transaction():
        await neighbour.execute("update reactor.job_types set description = 'mine' where name = 'calc'")
        changed = (definition("calc", TEXT), definition("other", TEXT))
        async with asyncio.timeout(20):
            assert await publish(connection, worker, *changed) == ["calc"]
            await connection.execute(statements.SEE_JOB_TYPES, 0.0)
    assert await publish(connection, worker, *changed) == []
    schemas = await connection.fetch("select payload_schema from reactor.job_types")
    assert [json.loads(row["payload_schema"]) for row in schemas] == [TEXT, TEXT]


async def test_twenty_workers_publish_two_versions_at_once_without_a_deadlock(
    connection: Connection, database: str
) -> None:
    names = [f"type-{number}" for number in range(600)]
    together = asyncio.Barrier(20)

    async def begin(number: int) -> None:
        async with connect(database, name="worker") as own:
            definitions = [definition(name, (YEAR, TEXT)[number % 2]) for name in names]
            worker = Worker("pod", dict.fromkeys(names))
            await register_worker(own, worker, 600)
            await own.fetch(statements.PUBLISH_JOB_TYPES, UUID(int=0), "[]")  # prepares it
            await together.wait()
            while await publish(own, worker, *(definitions if number % 3 else definitions[::-1])):
                await asyncio.sleep(0.01)

    async with asyncio.timeout(60):
        await asyncio.gather(*(begin(number) for number in range(20)))
    assert await connection.fetchval("select count(*) from reactor.job_types") == 600
    assert (await submit(connection, job({"year": 1}, "type-7"), job({"year": "x"}, "type-7")))[0][
        "outcome"
    ] == "created"


async def test_a_type_of_a_live_worker_is_seen_and_one_that_is_gone_for_long_is_removed(
    connection: Connection,
) -> None:
    await start(connection, definition("calc"))
    gone = await start(connection, definition("gone"))
    await retire_worker(connection, gone.id)
    await connection.execute("update reactor.job_types set last_seen_at = now() - interval '31 days'")
    await connection.execute(statements.SEE_JOB_TYPES, 30 * 86400.0)
    [left] = await connection.fetch(
        "select name, now() - last_seen_at < interval '1 minute' as seen from reactor.job_types"
    )
    assert tuple(left) == ("calc", True)


# The setting

INSERTS = {
    "insert": "insert into reactor.jobs (job_type, payload) values ('calc', $1)",
    "insert with options": "insert into reactor.jobs (job_type, payload, scope, priority) values ('calc', $1, 's', 3)",
    "submit": "select * from reactor.submit('calc', $1::jsonb)",
    "submit_many": "select * from reactor.submit_many(jsonb_build_array(jsonb_build_object("
    "'job_type', 'calc', 'payload', $1::jsonb)))",
    "new_jobs": "insert into reactor.new_jobs (job_type, payload) values ('calc', $1)",
}


@pytest.mark.parametrize("statement", INSERTS.values(), ids=INSERTS.keys())
async def test_inserts_are_checked_while_the_setting_is_on(
    connection: Connection, database: str, statement: str
) -> None:
    """F1: in all sessions at once, also by statements that they have prepared; off by default."""
    await start(connection, definition("calc", YEAR))
    async with connect(database, name="producer") as producer:
        insert = await producer.prepare(statement)
        await insert.fetch('{"year": "x"}')
        async with connection.transaction():
            await connection.execute("update reactor.settings set check_payloads = true")
            await insert.fetch('{"year": "x"}')  # it is not committed yet
        with pytest.raises(asyncpg.CheckViolationError, match="'calc': payload.year must be an integer") as refused:
            await insert.fetch('{"year": "x"}')
        assert refused.value.sqlstate == "23514"
        assert "reactor.job_types" in str(refused.value.hint)
        await insert.fetch('{"year": 1}')
        await connection.execute("update reactor.settings set check_payloads = false")
        await insert.fetch('{"year": "x"}')
    assert await stored(connection) == 4


async def test_an_insert_evaluates_nothing_of_the_check_while_the_setting_is_off(connection: Connection) -> None:
    """The setting is a constant of the plan, which is left out of the condition that recognises most rows."""
    names = await connection.fetchval("select proargnames from pg_proc where proname = 'is_plain'")
    call = f"explain verbose select reactor.is_plain({', '.join(f'j.{name}' for name in names)}) from reactor.jobs j"

    async def condition() -> str:
        [found] = [row[0] for row in await connection.fetch(call) if "Output:" in row[0]]
        return str(found)

    assert "THEN ((num_nonnulls(" in await condition()
    await connection.execute("update reactor.settings set check_payloads = true")
    assert "THEN false" in await condition()


async def test_the_setting_survives_a_later_revision_that_runs_its_functions_again(connection: Connection) -> None:
    await start(connection, definition("calc", YEAR))
    await connection.execute("update reactor.settings set check_payloads = true")
    await connection.execute((folder("sql") / "schema" / "functions" / "job_types.sql").read_text())
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("insert into reactor.jobs (job_type) values ('calc')")


async def test_a_rollback_of_the_setting_undoes_it(connection: Connection) -> None:
    await start(connection, definition("calc", YEAR))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("update reactor.settings set check_payloads = true")
    await transaction.rollback()
    await connection.execute("insert into reactor.jobs (job_type) values ('calc')")


async def test_producers_are_checked_by_the_setting_and_can_not_change_it(connection: Connection) -> None:
    await start(connection, definition("calc", YEAR))
    await connection.execute("update reactor.settings set check_payloads = true")
    await connection.execute("set role reactor_producer")
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("insert into reactor.jobs (job_type) values ('calc')")
    await connection.execute("insert into reactor.jobs (job_type, payload) values ('calc', '{\"year\": 1}')")
    assert (await submit(connection, job({})))[0]["outcome"] == "invalid"
    assert (await submit(connection, job({"year": 1})))[0]["warning"] is None
    assert await connection.fetchval("select count(*) from reactor.job_types") == 1
    for denied in (
        "update reactor.settings set check_payloads = false",
        "create or replace function reactor.checks_payloads() returns boolean language sql immutable return false",
        "select reactor.set_check_payloads()",
        "update reactor.job_types set is_checked = false",
        "delete from reactor.job_types",
        "insert into reactor.job_types (name, delivery, is_checked, version) values ('x', 'x', false, '')",
        "update reactor.live_workers set queues = null",
        "select * from reactor.workers",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(denied)


async def test_a_role_that_may_operate_switches_the_setting(connection: Connection) -> None:
    await start(connection, definition("calc", YEAR))
    await connection.execute("set role reactor_worker")
    await connection.execute("update reactor.settings set check_payloads = true")
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("insert into reactor.jobs (job_type) values ('calc')")


async def test_publishing_again_keeps_the_lease_of_a_worker(connection: Connection) -> None:
    worker = await start(connection, definition("calc"))
    found = await connection.fetchrow("select lease_until, ended_at, schema_versions from reactor.workers")
    await publish(connection, worker, definition("calc", YEAR))
    again = await connection.fetchrow("select lease_until, ended_at, schema_versions from reactor.workers")
    assert found
    assert again
    assert tuple(found)[:2] == tuple(again)[:2]
    assert (found["schema_versions"], len(again["schema_versions"][0])) == ([""], 32)
    assert await publish(connection, Worker("pod", {}, id=UUID(int=1)), definition("calc", TEXT)) == []
    assert json.loads(await connection.fetchval("select payload_schema from reactor.job_types")) == YEAR
