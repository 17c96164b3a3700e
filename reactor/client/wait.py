"""Waits for a job to end."""

import asyncio
import os
from contextlib import suppress
from typing import Any, NamedTuple

from reactor.database import statements
from reactor.database.connection import connect
from reactor.database.jsonb import decoded
from reactor.errors import JobUnknown, SettingsInvalid
from reactor.job import JobState

_LOOK_SECONDS = 1.0


class Finished(NamedTuple):
    """How a job ended."""

    id: int
    state: JobState
    result: dict[str, Any] | None
    error: str | None


async def wait(job_id: int, url: str | None = None, *, timeout_seconds: float | None = None) -> Finished:
    """Returns when the job has ended, in whatever way; raises TimeoutError when that takes too long.

    Opens a connection for it: who waits for many jobs better watches their pipeline.
    """
    url = url or os.environ.get("REACTOR_DATABASE_URL")
    if not url:
        raise SettingsInvalid(["wait(job_id, url) needs the address of a database, or REACTOR_DATABASE_URL."])
    limit = asyncio.timeout(timeout_seconds)
    try:
        async with limit:
            return await _wait(job_id, url)
    except TimeoutError:
        if not limit.expired():
            raise  # the network's own
        raise TimeoutError(f"job {job_id} has not ended within {timeout_seconds:g} s") from None


async def _wait(job_id: int, url: str) -> Finished:
    changed = asyncio.Event()
    async with connect(url, name="reactor wait") as connection:
        # Behind a pooler nothing is heard; then the look once a second has to do.
        await connection.add_listener("reactor_feed", lambda *_: changed.set())
        while True:
            changed.clear()
            row = await connection.fetchrow(statements.FINISHED, job_id)
            if row is None:
                raise JobUnknown(job_id)
            if (state := JobState(row["state"])).is_terminal:
                return Finished(job_id, state, decoded(row["result"]), row["error"])
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await changed.wait()
