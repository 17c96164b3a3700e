"""Waits for a job to finish."""

import asyncio
import os
from contextlib import suppress
from typing import Any, NamedTuple

from reactor.database import statements
from reactor.database.connection import connect
from reactor.database.jsonb import decoded
from reactor.errors import JobUnknown, SettingsInvalid
from reactor.job import JobState


class Finished(NamedTuple):
    """How a job ended."""

    id: int
    state: JobState
    result: dict[str, Any] | None
    error: str | None


async def wait(
    job_id: int, url: str | None = None, *, timeout_seconds: float | None = None, poll_seconds: float = 1.0
) -> Finished:
    """Returns when the job has finished, in any state. Raises TimeoutError after `timeout_seconds`.

    Opens its own connection; to wait for many jobs, watch their pipeline instead. `poll_seconds`: the time between
    checks where no notification arrives.
    """
    url = url or os.environ.get("REACTOR_DATABASE_URL")
    if not url:
        raise SettingsInvalid(["wait(job_id, url) needs the URL of the database; REACTOR_DATABASE_URL is not set."])
    limit = asyncio.timeout(timeout_seconds)
    try:
        async with limit:
            return await _wait(job_id, url, poll_seconds)
    except TimeoutError:
        if not limit.expired():
            raise  # a network timeout
        raise TimeoutError(f"job {job_id} has not finished within {timeout_seconds:g} s") from None


async def _wait(job_id: int, url: str, poll_seconds: float) -> Finished:
    changed = asyncio.Event()
    async with connect(url, name="reactor wait") as connection:
        # Behind a pooler no notification arrives, so it polls as well.
        await connection.add_listener("reactor_feed", lambda *_: changed.set())
        while True:
            changed.clear()
            row = await connection.fetchrow(statements.FIND_OUTCOME, job_id)
            if row is None:
                raise JobUnknown(job_id)
            if (state := JobState(row["state"])).is_terminal:
                return Finished(job_id, state, decoded(row["result"]), row["error"])
            with suppress(TimeoutError):
                async with asyncio.timeout(poll_seconds):
                    await changed.wait()
