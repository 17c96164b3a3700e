"""The number of statements per request does not depend on the number of rows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from reactor.database.connection import Connection


@pytest.fixture
def sent(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that requests have sent to the database."""
    texts: list[str] = []
    state = app.state.reactor
    original = state.connection

    @asynccontextmanager
    async def logged_connection() -> AsyncIterator[Connection]:
        async with original() as connection:
            with connection.query_logger(lambda record: texts.append(record.query)):
                yield connection

    monkeypatch.setattr(state, "connection", logged_connection)
    return texts


PATHS = (
    "/v1/jobs?limit=100",
    "/v1/jobs/{job}",
    "/v1/jobs/{job}/why",
    "/v1/pipelines?limit=100",
    "/v1/pipelines?limit=100&q=wor",
    "/v1/pipelines/{pipeline}",
    "/v1/workers",
    "/v1/job-types",
    "/v1/queues",
    "/v1/drain",
    "/v1/schedules",
)


async def test_every_get_sends_one_statement_for_one_row_and_for_fifty(
    api: httpx.AsyncClient, connection: Connection, sent: list[str]
) -> None:
    """J10: no N+1."""

    async def fill(count: int) -> dict[str, Any]:
        jobs = [{"job_type": "work", "name": "first"}, *([{"job_type": "work", "depends_on": ["first"]}] * count)]
        made = (await api.post("/v1/pipelines", json={"jobs": jobs})).json()
        first, last = min(made["jobs"].values()), max(made["jobs"].values())
        await connection.execute(
            "insert into reactor.steps (job_id, name, position) select $1, g, g from generate_series(1, $2::int) g",
            last,
            count,
        )
        await connection.execute(
            "insert into reactor.attempts (job_id, attempt_id, number, outcome)"
            " select $1, gen_random_uuid(), g, 'error' from generate_series(1, $2::int) g",
            last,
            count,
        )
        await connection.execute(
            "insert into reactor.jobs (job_type, queue) select 'work', 'q' || g from generate_series(1, $1::int) g",
            count,
        )
        await connection.execute(
            "insert into reactor.workers (id, pod, job_types, capacity, lease_until)"
            " select gen_random_uuid(), 'p', '{work}', 1, now() + interval '1 hour' from generate_series(1, $1::int)",
            count,
        )
        await connection.execute(
            "insert into reactor.job_types (name, delivery, is_checked, version)"
            " select $2 || '-' || g, 'at_least_once', true, '' from generate_series(1, $1::int) g",
            count,
            str(first),
        )
        await connection.execute(
            "insert into reactor.schedules (name, job_type, every)"
            " select $2 || '-' || g, 'work', '1 day' from generate_series(1, $1::int) g",
            count,
            str(first),
        )
        return {"job": last, "pipeline": made["pipeline_id"]}

    counts = []
    for count in (1, 50):
        named = await fill(count)
        numbers = {}
        for path in PATHS:
            sent.clear()
            response = await api.get(path.format(**named))
            assert response.status_code == 200
            assert count == 1 or len(response.content) > 2000 or path in ("/v1/drain", "/v1/jobs/{job}/why")
            numbers[path] = len(sent)
        counts.append(numbers)
    assert counts[0] == counts[1]
    assert set(counts[0].values()) == {1}


async def test_a_pipeline_of_fifty_jobs_takes_as_many_statements_as_one_job(
    api: httpx.AsyncClient, sent: list[str]
) -> None:
    counts = []
    for count in (1, 50):
        sent.clear()
        assert (await api.post("/v1/pipelines", json={"jobs": [{"job_type": "work"}] * count})).status_code == 202
        counts.append(len(sent))
    assert counts[0] == counts[1]
