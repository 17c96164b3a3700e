"""The ends of attempts, where the database can't store all of them."""

from reactor import Registry
from reactor.database.connection import connect
from reactor.database.migrate import migration_script
from reactor.outcome import Retry
from reactor.pod.in_process import Reactor
from tests.support.databases import empty_database
from tests.support.until import until


async def test_characters_that_the_database_lacks_are_escaped(server: str) -> None:
    """`reactor migrate` refuses such a database; this one is older than that rule."""
    registry = Registry()

    @registry.register("raises")
    async def raises() -> None:
        raise Retry("no 🎉", after=3600)

    @registry.register("returns")
    async def returns() -> dict[str, object]:
        return {"é": ["🎉", 1]}

    async with (
        empty_database(server, "encoding 'LATIN1' locale 'C' template template0") as url,
        connect(url, name="test") as connection,
    ):
        await connection.execute(migration_script().encode("latin-1", "replace").decode("latin-1"))
        await connection.execute("reset role")
        await connection.execute("insert into reactor.jobs (job_type) values ('raises'), ('returns')")
        async with Reactor(url, registry=registry):
            ended = "select bool_and(state <> 'running' and attempts = 1) from reactor.jobs"
            await until(lambda: connection.fetchval(ended))
        jobs = await connection.fetch("select state, attempts, error, result::text from reactor.jobs order by id")
    assert [(job["state"], job["attempts"]) for job in jobs] == [("pending", 1), ("completed", 1)]
    assert r"no \U0001f389" in jobs[0]["error"]
    assert r"\\U0001f389" in jobs[1]["result"]
