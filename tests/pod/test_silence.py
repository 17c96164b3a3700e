"""Worker processes that do not respond are reported, and keep their jobs."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from reactor.database.connection import Connection
from reactor.pod.silence import Silence, Timings
from reactor.queries.why import Code, Reason, why
from reactor.worker.running_attempts import RunningAttempts
from tests.support.jobs import Row, has_state, insert
from tests.support.pods import Marks, StartPod
from tests.support.until import until

SILENT_SECONDS = 3.0
NOTICES_SOON = [
    sys.executable,
    "-c",
    f"""
import sys
from reactor.cli import main
from reactor.pod.silence import Silence, Timings

Silence.timings = Timings(silent_seconds={SILENT_SECONDS})
sys.argv[:] = ["reactor", *sys.argv[4:]]
main()
""",
]
"""Starts a pod in this process, instead of `python -m reactor`."""


async def silent(connection: Connection, job_id: int, state: str) -> Reason | None:
    running, *found = (await why(connection, job_id)).reasons
    assert running.code is Code.RUNNING
    return next((one for one in found if (one.code, one.facts["state"]) == (Code.WORKER_SILENT, state)), None)


async def stored(connection: Connection) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(await connection.fetchval("select counts from reactor.workers"))
    return counts


async def test_a_stopped_worker_process_is_reported_until_it_responds_again(
    start_pod: StartPod, connection: Connection, marks: Marks, row: Row, tmp_path: Path
) -> None:
    """It is not ended, and its job is not charged. The report does not wait for the next heartbeat."""
    pod = await start_pod("--health-port", "0", prefix=NOTICES_SOON, HEARTBEAT_SECONDS=60, LEASE_SECONDS=600)
    [serving] = await until(lambda: pod.events("serving health checks"))
    job_id = await insert(connection, "held")
    [(_, _, pid, _)] = await until(lambda: marks("started"))

    def reported() -> list[dict[str, Any]]:
        # A machine that stalls may silence the process before it is stopped.
        return [event for event in pod.events("worker process does not respond") if event["state"] == "stopped"]

    async def silent_seconds() -> float:
        async with httpx.AsyncClient(base_url=serving["address"], timeout=20) as client:
            lines = (await client.get("/metrics")).text.splitlines()
        [line] = [line for line in lines if line.startswith("reactor_worker_silent_seconds{")]
        return float(line.split()[-1])

    os.kill(pid, signal.SIGSTOP)
    try:
        [event] = await until(reported)
        assert (event["level"], event["pid"], event["running"]) == ("warning", pid, 1)
        assert event["seconds"] >= SILENT_SECONDS
        reason = await until(lambda: silent(connection, job_id, "stopped"))
        assert reason.message.startswith("Its worker process has not responded for ")
        assert reason.facts["pid"] == pid
        assert reason.facts["for_seconds"] >= SILENT_SECONDS
        assert await silent_seconds() >= SILENT_SECONDS
    finally:
        os.kill(pid, signal.SIGCONT)
    await until(lambda: pod.events("worker process responds again"))

    async def responds() -> bool:
        return "silent_seconds" not in await stored(connection)

    await until(responds)
    assert [reason.code for reason in (await why(connection, job_id)).reasons] == [Code.RUNNING]
    assert await silent_seconds() == 0
    (tmp_path / "let-go").touch()
    await until(lambda: has_state(row, job_id, "completed"))
    assert (await row(job_id))["attempts"] == 1
    assert await connection.fetchval("select count(*) from reactor.attempts") == 0
    assert not pod.events("worker died")
    assert len(reported()) == 1


@pytest.mark.parametrize("kind", ["block", "gil"])
async def test_a_worker_process_that_a_handler_blocks_is_reported(
    start_pod: StartPod, connection: Connection, marks: Marks, kind: str
) -> None:
    """It blocks the event loop, or holds the interpreter in C code."""
    pod = await start_pod(prefix=NOTICES_SOON)
    job_id = await insert(connection, kind)
    [(_, _, pid, _)] = await until(lambda: marks("started"))
    await until(lambda: [e for e in pod.events("worker process does not respond") if e["running"] == 1])
    reason = await until(lambda: silent(connection, job_id, "blocked"))
    assert "a handler blocks it" in reason.message
    assert reason.facts["pid"] == pid


async def test_a_supervisor_that_was_frozen_too_does_not_report_its_worker_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Silence, "timings", Timings(silent_seconds=0.3, pause_seconds=0.1))
    running_attempts = RunningAttempts(1)
    silence = Silence(os.getpid(), running_attempts)
    assert not silence.check(), "it has not started to work"
    running_attempts.note_alive(time.monotonic())
    await asyncio.sleep(0.5)
    assert not silence.check()
    await until(silence.check)
    assert silence.facts["silent_seconds"] >= 0.8
    running_attempts.note_alive(time.monotonic())
    assert silence.check()
    assert silence.facts == {}
    running_attempts.close()


def test_a_sign_of_life_leaves_the_attempts_as_they_are() -> None:
    """They are in the same memory."""
    ours = RunningAttempts(2, unsettled=0)
    theirs = RunningAttempts(2, descriptor=os.dup(ours.descriptor))
    ids = [uuid4(), uuid4()]
    entries = [theirs.enter(attempt_id, n, float(n)) for n, attempt_id in enumerate(ids, 1)]
    listed = ours.read()
    assert (list(listed), theirs.free, ours.alive_at) == (ids, 0, 0)
    theirs.note_alive(1234.5)
    assert (ours.read(), ours.alive_at) == (listed, 1234.5)
    for entry in entries:
        theirs.leave(entry)
    assert (ours.read(), ours.alive_at) == ({}, 1234.5)
    theirs.close()
    ours.close()
