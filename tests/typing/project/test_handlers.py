"""The user's own test, with reactor.testing."""

import asyncpg

import reactor
from reactor import Context, Job, JobState, Registry
from reactor.testing import run_until_idle

pytest_plugins = ["reactor.pytest_plugin"]

registry = Registry()


@registry.register("greet")
async def greet(job: Job, ctx: Context) -> dict[str, str]:
    return {"greeting": f"Hello, {job.payload['name']}!"}


async def test_it_greets(reactor_database: str) -> None:
    connection = await asyncpg.connect(reactor_database)
    submitted = await reactor.submit(connection, "greet", {"name": "you"})
    assert submitted.outcome == "created"
    assert await run_until_idle(reactor_database, registry, skip_delays=True) == {JobState.COMPLETED: 1}
    await connection.close()
