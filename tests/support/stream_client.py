"""A client of streams that behaves like a browser: it keeps the received state and resumes by cursor."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

# Shared, because reading the machine's certificates for every client would take most of a test's time.
_CONTEXT = ssl.create_default_context()


@dataclass
class Event:
    kind: str
    data: Any
    id: str | None


async def read_events(response: httpx.Response) -> AsyncIterator[Event]:
    kind, data, last_id = "message", "", None
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        match name if line else "end of block":
            case "event":
                kind = value
            case "data":
                data = value
            case "id":
                last_id = value
            case "end of block":
                if data:
                    yield Event(kind, json.loads(data), last_id)
                kind, data, last_id = "message", "", None


@asynccontextmanager
async def open_stream(
    address: str, path: str, last_id: str | None = None, **options: Any
) -> AsyncIterator[httpx.Response]:
    headers = {"last-event-id": last_id} if last_id else {}
    async with (
        httpx.AsyncClient(
            base_url=address, timeout=30, verify=_CONTEXT, headers=headers | options.pop("headers", {})
        ) as client,
        client.stream("GET", path, params=options) as response,
    ):
        yield response


@dataclass
class Watcher:
    """Applies whole batches: one that is cut off before its cursor will be sent again."""

    path: str
    last_id: str | None = None
    pipeline: dict[str, Any] = field(default_factory=dict)
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    steps: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    repeated: list[Event] = field(default_factory=list)
    """Rows that were sent again unchanged."""
    resets: int = 0
    batches: int = 0
    ended: bool = False
    status: int = 0

    async def follow(self, address: str, **options: Any) -> None:
        """Reads until the stream ends."""
        async with open_stream(address, self.path, self.last_id, **options) as response:
            self.status = response.status_code
            batch: list[Event] = []
            if self.status == 200:
                async for event in read_events(response):
                    batch.append(event)
                    if event.id:
                        self._take(batch)
                        self.last_id = event.id
                        batch = []

    def _take(self, batch: list[Event]) -> None:
        self.batches += 1
        for event in batch:
            match event.kind:
                case "reset":
                    self.resets += 1
                case "snapshot":
                    self.pipeline = event.data["pipeline"]
                    self.jobs = {job["id"]: job for job in event.data["jobs"]}
                    self.steps = {(step["job_id"], step["name"]): step for step in event.data["steps"]}
                case "job":
                    self._put(event, self.jobs, event.data["id"])
                case "step":
                    self._put(event, self.steps, (event.data["job_id"], event.data["name"]))
                case "pipeline":
                    self.pipeline = event.data
                case "end":
                    self.ended = True

    def _put(self, event: Event, rows: dict[Any, dict[str, Any]], key: Any) -> None:
        before = rows.get(key, {})
        # The dependencies of a known job are not sent again.
        known = {"depends_on": before["depends_on"]} if before.get("depends_on") is not None else {}
        after = event.data | known
        if before == after:
            self.repeated.append(event)
        rows[key] = after
