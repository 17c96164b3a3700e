"""What Python clients learn about their submissions: payloads that don't fit, and jobs that no pod would run."""

import json
import pickle
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from reactor import NewJob, Pipeline, submit, submit_many
from reactor.client.submitted import Submitted
from reactor.database.connection import Connection
from reactor.errors import JobInvalid, PayloadRefused
from reactor.lifecycle.lease import Worker

SCHEMA = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}


@pytest.fixture(autouse=True)
async def known(connection: Connection, worker: Worker) -> None:
    """A live worker handles `work`, whose payload has a year."""
    await connection.execute(
        "insert into reactor.job_types (name, delivery, is_checked, version, payload_schema)"
        " values ('work', 'at_least_once', true, 'v', $1)",
        json.dumps(SCHEMA),
    )


async def count(connection: Connection) -> int:
    number: int = await connection.fetchval("select count(*)::int from reactor.jobs")
    return number


async def test_a_payload_that_does_not_fit_is_an_error_that_names_the_field(connection: Connection) -> None:
    """F1, F13: nothing is created, and the caller's transaction goes on."""
    async with connection.transaction():
        with pytest.raises(PayloadRefused) as refused:
            await submit(connection, "work", {"year": "x"})
        await submit(connection, "work", {"year": 2026})
    assert isinstance(refused.value, JobInvalid)
    assert refused.value.errors == (("payload.year", "must be an integer"),)
    assert refused.value.job_type == "work"
    assert "payload.year must be an integer, by the schema of work" in str(refused.value)
    assert "reactor types work" in refused.value.remedy
    assert await count(connection) == 1


async def test_of_many_jobs_none_is_created_and_the_field_has_the_jobs_position(connection: Connection) -> None:
    jobs = [NewJob(job_type="work", payload={"year": year}) for year in (1, "x", 2, None)]
    with pytest.raises(PayloadRefused) as refused:
        await submit_many(connection, iter(jobs))
    assert [field for field, _ in refused.value.errors] == ["jobs[1].payload.year", "jobs[3].payload.year"]
    pipeline = Pipeline()
    first = pipeline.job("work", {"year": 1})
    pipeline.job("work", depends_on=[first])
    with pytest.raises(PayloadRefused) as refused:
        await pipeline.submit(connection)
    assert refused.value.errors == (("jobs[1].payload.year", "is required"),)
    assert await count(connection) == 0


async def test_a_long_list_of_complaints_is_shortened_in_the_message(connection: Connection) -> None:
    with pytest.raises(PayloadRefused, match="and 4 more") as refused:
        await submit_many(connection, [NewJob(job_type="work")] * 7)
    assert len(refused.value.errors) == 7


async def test_every_driver_refuses_the_payload_and_keeps_its_transaction(
    connection: Connection, database: str
) -> None:
    url = database.replace("postgresql://", "postgresql+psycopg://").replace("&target_session_attrs=any", "")
    with psycopg.connect(database) as sync:
        with pytest.raises(PayloadRefused):
            submit(sync, "work", {})
        assert submit(sync, "work", {"year": 1}).warning is None
    async with await psycopg.AsyncConnection.connect(database) as later:
        with pytest.raises(PayloadRefused):
            await submit(later, "work", {})
        await submit_many(later, [NewJob(job_type="work", payload={"year": 1})])
    engine = create_engine(url)
    with Session(engine) as session:
        with pytest.raises(PayloadRefused):
            submit(session, "work", {})
        session.execute(text("select 1"))
        warning = submit(session, "wrok", {}).warning
        assert warning is not None
        assert warning.message.endswith("Did you mean work?")
        session.commit()
    engine.dispose()
    async_engine = create_async_engine(url)
    async with AsyncSession(async_engine) as async_session:
        with pytest.raises(PayloadRefused):
            await submit(async_session, "work", {})
        await submit(async_session, "work", {"year": 1})
        await async_session.commit()
    await async_engine.dispose()
    assert await count(connection) == 4


async def test_a_job_that_no_live_pod_would_run_is_created_with_a_warning(connection: Connection) -> None:
    """F13: the three that unpack are the same as ever."""
    job = await submit(connection, "wrok")
    identity, pipeline_id, outcome = job
    assert (identity, pipeline_id, outcome) == (job.id, job.pipeline_id, "created")
    assert job.warning == (
        "no_handler",
        "No live pod has a handler for wrok: the job waits for one. Did you mean work?",
    )
    assert pickle.loads(pickle.dumps(job)).warning == job.warning  # noqa: S301
    assert Submitted(*job) == job
    good = await submit(connection, "work", {"year": 1})
    assert good.warning is None
    await connection.execute("update reactor.workers set queues = '{gpu}'")
    elsewhere = await submit(connection, "work", {"year": 1})
    assert elsewhere.warning == (
        "no_pod_for_queue",
        "No live pod that handles work works on the queue default: the job waits for one.",
    )


async def test_a_pipeline_has_a_warning_for_each_kind_of_job(connection: Connection) -> None:
    pipeline = Pipeline()
    for job_type in ("wrok", "wrok", "work", "other"):
        pipeline.job(job_type, {"year": 1})
    submitted = await pipeline.submit(connection)
    assert [warning.message.split(":")[0] for warning in submitted.warnings] == [
        "No live pod has a handler for wrok",
        "No live pod has a handler for other",
    ]
    assert len(submitted.jobs) == 4


async def test_an_existing_job_is_returned_without_a_warning(connection: Connection, worker: Worker) -> None:
    async def send(payload: dict[str, Any]) -> Submitted:
        return await submit(connection, "work", payload, idempotency_key="k")

    first = await send({"year": 1})
    await connection.execute("update reactor.workers set ended_at = now()")
    again = await send({"year": "x"})
    assert (again.id, again.outcome, again.warning) == (first.id, "existing", None)
