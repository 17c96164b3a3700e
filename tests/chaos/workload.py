"""Jobs of every kind, submitted while a fault happens by a producer that only knows which commits were acknowledged."""

import asyncio
import itertools
import json
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from reactor import Pipeline
from reactor.database.connection import Connection, connect
from reactor.database.failures import DRIVER_ERRORS
from reactor.errors import ReactorError

LEDGER = "create table ledger (job_id bigint not null, at timestamptz not null default clock_timestamp())"
_DELAYED = (
    "insert into reactor.jobs (job_type, payload, run_after, max_attempts) "
    "values ('plain', '{\"delay\": 1}', clock_timestamp() + interval '1 s', $1) returning pipeline_id"
)
# A statement that hangs with the server must not stop the producer for the rest of the test.
_GIVE_UP_SECONDS = 5.0


@dataclass
class Workload:
    url: str
    """Of the server that takes submissions now; a failover changes it."""
    max_attempts: int = 1
    pause_seconds: float = 0.3
    acknowledged: set[UUID] = field(default_factory=set)
    """Pipelines whose commit the server confirmed. A server that loses transactions may use their ids again."""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def submit(self, *, seconds: float = 0.1) -> None:
        """One of each kind, in one transaction."""
        async with connect(self.url, name="producer", timeout_seconds=_GIVE_UP_SECONDS) as connection:
            await self._submit(connection, seconds)

    async def keep_submitting(self) -> None:
        """Until it is cancelled, with a new connection whenever one breaks."""
        while True:
            with suppress(*DRIVER_ERRORS, ReactorError, TimeoutError):
                async with connect(self.url, name="producer", timeout_seconds=_GIVE_UP_SECONDS) as connection:
                    while True:
                        async with asyncio.timeout(_GIVE_UP_SECONDS):
                            await self._submit(connection, 0.1)
                        await asyncio.sleep(self.pause_seconds)
            await asyncio.sleep(self.pause_seconds)

    async def _submit(self, connection: Connection, seconds: float) -> None:
        number = next(self._numbers)
        async with connection.transaction():
            created = [
                await self._insert(connection, "plain", seconds),
                await self._insert(connection, "thread", seconds),
                await self._insert(connection, "ledger", seconds),
                await self._insert(connection, "family", seconds),
                await self._insert(connection, "stepwise", seconds),
                await self._insert(connection, "plain", seconds, scope=f"s{number % 3}"),
                await self._insert(connection, "ledger", 0.1, scope=f"s{number % 3}"),
                await connection.fetchval(_DELAYED, self.max_attempts),
            ]
            pipeline = Pipeline()
            first = pipeline.job("ledger", max_attempts=self.max_attempts)
            leaves = [pipeline.job("plain", depends_on=[first], max_attempts=self.max_attempts) for _ in range(2)]
            pipeline.job("ledger", depends_on=leaves, max_attempts=self.max_attempts)
            created.append((await pipeline.submit(connection)).id)
        self.acknowledged.update(created)

    async def _insert(self, connection: Connection, job_type: str, seconds: float, scope: str | None = None) -> UUID:
        pipeline_id: UUID = await connection.fetchval(
            "insert into reactor.jobs (job_type, payload, scope, max_attempts) values ($1, $2, $3, $4) "
            "returning pipeline_id",
            job_type,
            json.dumps({"seconds": seconds}),
            scope,
            self.max_attempts,
        )
        return pipeline_id
