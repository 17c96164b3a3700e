"""Readers of streams: each follows a pipeline, or all of them, and reconnects from cursors of any age."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from reactor.database.connection import Connection
from reactor.errors import PipelineUnknown
from reactor.feed.cursor import Cursor
from reactor.feed.feed import Feed
from reactor.feed.subscriptions import Batch
from tests.stress.world import World

Rows = dict[str, dict[str, Any]]

_JOBS = (
    "select id, state, attempts, is_current, children, waiting_on, left(error, 2000) as error"
    " from reactor.jobs where pipeline_id = $1"
)
_STEPS = (
    "select s.job_id, s.name, s.state from reactor.steps s join reactor.jobs j on j.id = s.job_id"
    " where j.pipeline_id = $1"
)
_PIPELINES = "select pipeline_id, state, jobs from reactor.pipelines where pipeline_id = any ($1::uuid[])"
_SAVED_POINTS = 10


@dataclass
class Point:
    """What a reader had at a cursor. It may reconnect with any of them."""

    cursor: Cursor | None = None
    rows: Rows = field(default_factory=dict)


class Follower:
    def __init__(self, world: World, name: str, feed: Feed, *, is_overview: bool) -> None:
        self._world = world
        self._name = name
        self._feed = feed
        self._is_overview = is_overview
        self._pipeline_id: UUID | None = None
        self._at = Point()
        self._points: list[Point] = []

    async def run(self) -> None:
        chance = self._world.chance(self._name)
        while not self._world.is_over:
            if not self._points or (not self._world.is_quiet and chance.random() < 0.2):
                if not self._choose(chance):
                    await asyncio.sleep(0.05)
                    continue
            elif not self._world.is_quiet:
                point = chance.choice(self._points)
                self._at = Point(point.cursor, dict(point.rows))
            await self._follow(chance.choice((0.05, 0.3, 1.0)))
            self._world.report.count("stream")

    def _choose(self, chance: random.Random) -> bool:
        """Another pipeline, with no rows of it."""
        jobs = self._world.model.jobs
        if not self._is_overview:
            if not jobs or self._world.is_quiet:
                return False
            self._pipeline_id = jobs[chance.choice(list(jobs))].now.pipeline_id
        self._at, self._points = Point(), []
        return True

    async def _follow(self, seconds: float) -> None:
        reader = self._feed.join(self._pipeline_id, self._at.cursor)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    given = await reader.next()
                    if isinstance(given, Batch):
                        self._take(given)
        except TimeoutError:
            pass
        except PipelineUnknown:  # it was pruned
            self._at, self._points = Point(), []
        finally:
            self._feed.leave(reader)

    def _take(self, batch: Batch) -> None:
        rows = {} if batch.is_snapshot else dict(self._at.rows)
        rows |= {change.key: json.loads(change.row) for change in batch.changes}
        self._at = Point(batch.cursor, rows)
        self._points = [*self._points[-_SAVED_POINTS:], self._at]

    async def differences(self, connection: Connection) -> list[str]:
        """Between what it was given and the tables, for pipelines that still exist: streams don't report prunes."""
        if self._is_overview:
            expected = await self._overview(connection)
        elif self._pipeline_id is not None and self._points:
            expected = await self._pipeline(connection, self._pipeline_id)
        else:
            return []
        return [
            f"{self._name} has {key} as {self._at.rows.get(key)}, and the table {row}"
            for key, row in expected.items()
            if key not in self._at.rows or any(self._at.rows[key][name] != value for name, value in row.items())
        ]

    async def _overview(self, connection: Connection) -> Rows:
        """Only those that it knows: a snapshot of all of them has the newest only."""
        known = [UUID(key.partition(" ")[2]) for key in self._at.rows]
        found = await connection.fetch(_PIPELINES, known)
        return {f"pipeline {row['pipeline_id']}": {"state": row["state"], "jobs": row["jobs"]} for row in found}

    async def _pipeline(self, connection: Connection, pipeline_id: UUID) -> Rows:
        found = await connection.fetch(_PIPELINES, [pipeline_id])
        rows: Rows = {f"pipeline {pipeline_id}": {"state": row["state"], "jobs": row["jobs"]} for row in found}
        rows |= {f"job {row['id']} None": dict(row) for row in await connection.fetch(_JOBS, pipeline_id)}
        steps = await connection.fetch(_STEPS, pipeline_id)
        return rows | {f"step {row['job_id']} {row['name']}": {"state": row["state"]} for row in steps}
