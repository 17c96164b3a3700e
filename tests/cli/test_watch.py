"""`reactor watch`: a drawing on the terminal, text lines, and JSON lines."""

import asyncio
import io
import json
import os
import pty
import signal
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from rich.console import Console

from reactor.cli.pipeline_state import PipelineState
from reactor.cli.tree import draw
from reactor.database.connection import Connection
from reactor.feed.cursor import Cursor
from reactor.feed.subscriptions import Batch, Change, Sign
from tests.support.command import started
from tests.support.until import until

HERE = Cursor("1", (1, 1, ()))


def watching(database: str, *arguments: str, **options: Any) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return started(database, "watch", *arguments, **options)


async def insert(connection: Connection, pipeline_id: UUID, count: int = 2) -> list[int]:
    rows = await connection.fetch(
        "insert into reactor.jobs (job_type, pipeline_id) select 'work', $1 from generate_series(1, $2) returning id",
        pipeline_id,
        count,
    )
    return [row["id"] for row in rows]


async def end(connection: Connection, job_id: int, state: str) -> None:
    await connection.execute(
        "update reactor.jobs set state = $2, error = $3, finished_at = clock_timestamp() where id = $1",
        job_id,
        state,
        "ValueError: no such file\n\n  File handlers.py, line 8" if state == "failed" else None,
    )


@pytest.mark.parametrize(
    ("last", "said", "code", "state"),
    [("completed", "completed", 0, "completed"), ("failed", "failed: ValueError: no such file", 1, "partial")],
)
async def test_watch_prints_each_change_and_exits_by_the_final_state(
    database: str, connection: Connection, last: str, said: str, code: int, state: str
) -> None:
    pipeline_id = uuid4()
    one, other = await insert(connection, pipeline_id)
    async with watching(database, str(pipeline_id)) as process:
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode() for _ in range(3)]
        assert lines == [f"job {one} work pending\n", f"job {other} work pending\n", "pipeline running: 2 pending\n"]
        await end(connection, one, "completed")
        assert await process.stdout.readline() == f"job {one} work completed\n".encode()
        await end(connection, other, last)
        rest = (await process.stdout.read()).decode()
        assert await process.wait() == code
    assert rest.startswith(f"job {other} work {said}\n")
    assert rest.splitlines()[-1].startswith(f"pipeline {state}: ")


async def test_watch_accepts_a_job_id_and_prints_json_lines(database: str, connection: Connection) -> None:
    pipeline_id = uuid4()
    one, other = await insert(connection, pipeline_id)
    for job_id in (one, other):
        await end(connection, job_id, "completed")
    async with watching(database, str(other), "--json") as process:
        output, _ = await process.communicate()
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(row["event"], row["state"]) for row in rows] == [("job", "completed")] * 2 + [("pipeline", "completed")]
    assert process.returncode == 0


async def test_watch_reports_when_the_database_stops_and_resumes_responding(
    database: str, connection: Connection
) -> None:
    pipeline_id = uuid4()
    [job_id] = await insert(connection, pipeline_id, 1)
    async with (
        asyncio.timeout(60),
        watching(database, str(pipeline_id)) as lines,
        watching(database, str(pipeline_id), "--json") as objects,
    ):
        assert lines.stdout
        assert lines.stderr
        assert objects.stdout
        await asyncio.gather(lines.stdout.readline(), objects.stdout.readline())
        async with connection.transaction():
            await connection.execute("lock table reactor.jobs in access exclusive mode")
            assert b"The database does not respond" in await lines.stderr.readline()
            while b'"stale"' not in await objects.stdout.readline():
                pass
        assert b"responds again" in await lines.stderr.readline()
        assert await objects.stdout.readline() == b'{"event": "fresh"}\n'
        await end(connection, job_id, "completed")
        assert [await lines.wait(), await objects.wait()] == [0, 0]


@pytest.mark.parametrize(
    ("named", "code", "said"),
    [
        ("0199c9f2-6a3e-7c1b-9f7e-3f1f6d0c2a11", 1, "no pipeline"),
        ("4711", 1, "no job 4711"),
        ("99999999999999999999999999", 1, "no job"),
        ("nonsense", 2, "neither"),
    ],
    ids=["pipeline", "job", "number", "text"],
)
async def test_watch_reports_unknown_ids(database: str, named: str, code: int, said: str) -> None:
    async with watching(database, named) as process:
        _, errors = await process.communicate()
    assert (process.returncode, said in errors.decode()) == (code, True), errors


async def test_watch_draws_on_a_terminal_until_ctrl_c(database: str, connection: Connection) -> None:
    pipeline_id = uuid4()
    one, _ = await insert(connection, pipeline_id)
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    seen = b""  # in pieces that may end within a character

    def reads(text: str) -> bool:
        nonlocal seen
        with suppress(OSError):
            seen += os.read(ours, 65_536)
        return text.encode() in seen

    async with watching(database, str(pipeline_id), stdout=theirs) as process:
        await until(lambda: reads("2 pending"))
        await connection.execute("update reactor.jobs set progress = 0.5, state = 'running' where id = $1", one)
        await until(lambda: reads("◐"))
        process.send_signal(signal.SIGINT)
        # Keep reading, or the full buffer of the terminal would block the process.
        await until(lambda: reads("") and process.returncode is not None)
        assert process.returncode == 130
    os.close(ours)
    os.close(theirs)


# The drawing


def job(job_id: int, state: str = "pending", **columns: Any) -> Change:
    row = {
        "id": job_id, "job_type": "work", "state": state, "scope": None, "parent_id": None, "attempts": 1,
        "error": None, "waiting_on": 0, "locked_by": "pod-1", "progress": None, "status_message": None,
    }  # fmt: skip
    edges = json.dumps(columns.pop("depends_on", []))
    return Change("job", f"1 {job_id}", json.dumps(row | columns), edges)


def pipeline_state(*changes: Change) -> PipelineState:
    state = PipelineState()
    pipeline = {"pipeline_id": "0199c9f2-6a3e-7c1b-9f7e-3f1f6d0c2a11", "state": "running", "progress": 0.996}
    batch = Batch([*changes, Change("pipeline", "3", json.dumps(pipeline))], HERE, is_snapshot=True)
    assert [kind for kind, _, _ in state.apply(batch)]
    return state


def screen(state: PipelineState, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=100, height=height, markup=False, highlight=False, emoji=False)
    console.print(draw(state, height))
    return str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_jobs_are_drawn_below_their_parent_or_last_dependency() -> None:
    lines = screen(
        pipeline_state(
            job(1, "completed"),
            job(2, "running", parent_id=1),
            job(3, parent_id=1),
            job(4, "waiting", depends_on=[2, 3]),
        )
    )
    drawn = [line[:12].rstrip() for line in lines[1:5]]
    assert drawn == ["● work 1", "  ◐ work 2", "  ○ work 3", "    ◌ work 4"]


def test_ten_thousand_jobs_fit_on_the_screen_and_running_ones_are_shown() -> None:
    many = [job(n, parent_id=1) for n in range(2, 10_000)]
    lines = screen(pipeline_state(job(1, "completed"), *many, job(10_000, "running", parent_id=1)))
    text = "\n".join(lines)
    assert len(lines) <= 24
    assert "9,998 × work" in text  # noqa: RUF001
    assert "◐ work 10000" in text


def test_the_least_important_lines_are_omitted_first() -> None:
    jobs = [job(n, "failed" if n == 50 else "completed", job_type=f"type {n}") for n in range(1, 100)]
    lines = screen(pipeline_state(*jobs), height=10)
    assert len(lines) <= 10
    assert any("✗ type 50" in line for line in lines)
    assert any("more lines" in line for line in lines)


def test_an_outdated_state_is_marked() -> None:
    state = pipeline_state(job(1, "running"))
    for sign, is_said in ((Sign.STALE, True), (Sign.FRESH, False)):
        assert not list(state.apply(sign))
        assert ("does not respond" in screen(state)[-1]) is is_said


def test_control_characters_in_the_tree_are_escaped() -> None:
    hostile = "\x1b]0;owned\x07[red]x[/red]\u202e"
    text = "\n".join(screen(pipeline_state(job(1, "failed", error=hostile, job_type=hostile, scope=hostile))))
    assert "\x1b]" not in text
    assert "\\x1b]0;owned" in text
    assert "[red]" in text
