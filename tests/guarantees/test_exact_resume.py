"""A client that is disconnected at any moment and resumes at any server has the state of the database."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import httpx

from reactor.database.connection import Connection, connect
from tests.support.stream_client import Watcher
from tests.support.until import until

WRITERS = 16
WRITE_SECONDS = 3.0
ANY_JOB = "select id from reactor.jobs where pipeline_id = $1 order by random() limit 1 for update skip locked"


class Writers:
    """Insert and change jobs and steps; of ten transactions one commits late and one is rolled back."""

    def __init__(self, url: str, pipelines: list[UUID], seed: int) -> None:
        self._url = url
        self._pipelines = pipelines
        self._seed = seed
        self._count = 0
        self._stop = asyncio.Event()

    async def write(self, enough: Awaitable[Any]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(WRITERS):
                tasks.create_task(self._work(random.Random(self._seed + number)))
            await enough
            self._stop.set()

    async def _work(self, chance: random.Random) -> None:
        async with connect(self._url, name="writer") as connection:
            while not self._stop.is_set():
                transaction = connection.transaction()
                await transaction.start()
                for _ in range(chance.randint(1, 3)):
                    await self._change(connection, chance)
                fate = chance.random()
                if fate < 0.1:
                    await asyncio.sleep(chance.uniform(0.1, 0.8))
                await (transaction.rollback() if fate > 0.9 else transaction.commit())
                await asyncio.sleep(chance.uniform(0, 0.02))

    async def _change(self, connection: Connection, chance: random.Random) -> None:
        """Never waits for a locked row, or the writers would queue up."""
        self._count += 1
        pipeline, said = chance.choice(self._pipelines), f"change {self._count}"
        match chance.randrange(4):
            case 0:
                await connection.execute(
                    "insert into reactor.jobs (job_type, pipeline_id) values ('never.run', $1)", pipeline
                )
            case 1 | 2:
                await connection.execute(
                    f"with o as ({ANY_JOB}) update reactor.jobs j set status_message = $2 from o where j.id = o.id",
                    pipeline,
                    said,
                )
            case _:
                await connection.execute(
                    f"with one as ({ANY_JOB}) insert into reactor.steps (job_id, name, position, error)"
                    " select id, 'step', 1, $2 from one"
                    " on conflict (job_id, name) do update set error = excluded.error",
                    pipeline,
                    said,
                )


async def read_with_interruptions(watcher: Watcher, addresses: list[str], chance: random.Random) -> None:
    """Disconnects at random, and resumes at another server."""
    while True:
        with suppress(TimeoutError, httpx.TransportError):
            async with asyncio.timeout(chance.choice((0.02, 0.1, 0.5, 1.5))):
                await watcher.follow(chance.choice(addresses))


async def held_by_the_database(connection: Connection, pipeline_id: UUID) -> tuple[dict[Any, Any], dict[Any, Any]]:
    jobs = await connection.fetch("select id, status_message from reactor.jobs where pipeline_id = $1", pipeline_id)
    steps = await connection.fetch(
        "select s.job_id, s.name, s.error from reactor.steps s join reactor.jobs j on j.id = s.job_id"
        " where j.pipeline_id = $1",
        pipeline_id,
    )
    return {job["id"]: job["status_message"] for job in jobs}, {(s["job_id"], s["name"]): s["error"] for s in steps}


def held_by(watcher: Watcher) -> tuple[dict[Any, Any], dict[Any, Any]]:
    return (
        {job_id: job["status_message"] for job_id, job in watcher.jobs.items()},
        {key: step["error"] for key, step in watcher.steps.items()},
    )


async def test_clients_that_reconnect_at_random_to_any_server_miss_and_repeat_nothing(
    database: str, connection: Connection, start_server: Callable[..., Awaitable[Any]]
) -> None:
    """Guarantee 8; D11."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    pipelines = [uuid4() for _ in range(4)]
    for pipeline in pipelines:
        await connection.execute("insert into reactor.jobs (job_type, pipeline_id) values ('never.run', $1)", pipeline)
    addresses = [(await start_server()).address for _ in range(2)]
    watchers = [Watcher(f"/v1/pipelines/{pipeline}/events") for pipeline in pipelines for _ in range(3)]
    readers = [
        asyncio.create_task(read_with_interruptions(watcher, addresses, random.Random(seed + number)))
        for number, watcher in enumerate(watchers)
    ]

    async def all_have_read() -> None:
        await asyncio.sleep(WRITE_SECONDS)
        await until(lambda: min(watcher.batches for watcher in watchers) > 5, within_seconds=60)

    await Writers(database, pipelines, seed).write(all_have_read())

    for number, watcher in enumerate(watchers):
        expected = await held_by_the_database(connection, pipelines[number // 3])

        await until(lambda watcher=watcher, expected=expected: held_by(watcher) == expected)
        assert watcher.pipeline["jobs"] == len(expected[0])
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert [watcher.repeated for watcher in watchers] == [[]] * len(watchers)
    assert sum(watcher.resets for watcher in watchers) == 0


async def test_a_sequence_number_as_cursor_would_lose_late_commits(database: str, connection: Connection) -> None:
    """The control: the same writers, and a client whose cursor is a sequence number."""
    await connection.execute("create sequence ticket")
    await connection.execute("alter table reactor.jobs add column ticket bigint")
    await connection.execute(
        "create function number_it() returns trigger language plpgsql security definer as"
        " $$ begin new.ticket := nextval('public.ticket'); return new; end $$"
    )
    await connection.execute(
        "create trigger number_it before insert or update on reactor.jobs for each row execute function number_it()"
    )
    pipeline = uuid4()
    await connection.execute("insert into reactor.jobs (job_type, pipeline_id) values ('never.run', $1)", pipeline)
    held: dict[int, str | None] = {}
    seen = 0

    async def read() -> None:
        nonlocal seen
        rows = await connection.fetch(
            "select id, status_message, ticket from reactor.jobs where pipeline_id = $1 and ticket > $2", pipeline, seen
        )
        held.update({row["id"]: row["status_message"] for row in rows})
        seen = max([seen, *(row["ticket"] for row in rows)])

    async def keep_reading() -> None:
        while True:
            await read()
            await asyncio.sleep(0.01)

    async def has_lost_something() -> bool:
        reader = asyncio.create_task(keep_reading())
        await Writers(database, [pipeline], random.randrange(10**6)).write(asyncio.sleep(1))
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        await read()
        return held != (await held_by_the_database(connection, pipeline))[0]

    await until(has_lost_something)
