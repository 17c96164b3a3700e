"""`reactor watch`: shows the progress of a pipeline until it ends."""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.live import Live

from reactor.cli.options import json_option
from reactor.cli.output import printable
from reactor.cli.pipeline_state import PipelineState, Row, count_by_state
from reactor.cli.tree import STALE, draw
from reactor.database.connection import connect
from reactor.database.refusals import refusals_explained
from reactor.database.revision import check_revision
from reactor.embedded.locate import locate
from reactor.error_text import first_line
from reactor.errors import ReactorError
from reactor.feed.feed import Feed
from reactor.feed.subscriptions import Batch, Reader, Sign
from reactor.queries.jobs import find_job
from reactor.settings import read_settings

_CONNECT_SECONDS = 10.0


@click.command()
@click.argument("pipeline", metavar="PIPELINE")
@json_option
def watch(pipeline: str, as_json: bool) -> None:
    """Show the progress of a pipeline until it ends. PIPELINE is its id, or the id of one of its jobs.

    \b
      reactor watch 01a1e315-ebab-7566-b11e-eec9b0005e2f
      reactor watch 17
      reactor watch 17 --json | jq -c 'select(.event == "job") | [.id, .state]'

    If standard output is not a terminal, a line is printed for each job and step that changes its state. With --json,
    each line is a JSON object: a row that changed, with its "event" (job, step or pipeline), or the event stale or
    fresh when the database stops responding and when it responds again.

    Exit codes: 0 the pipeline completed; 1 it ended in another state, or does not exist; 130 stopped with Ctrl-C, which
    does not affect the pipeline.
    """
    # Lost connections are shown in the output; log lines would disturb it.
    logging.getLogger("reactor").setLevel(logging.ERROR)
    show = _print_json if as_json else _draw if sys.stdout.isatty() else _print_lines
    sys.exit(asyncio.run(_watch(pipeline, show)))


Batches = AsyncIterator[Batch | Sign]
Show = Callable[[Batches, PipelineState], Coroutine[Any, Any, None]]


async def _watch(text: str, show: Show) -> int:
    async with locate(read_settings()) as location:
        pipeline_id = await _find_pipeline_id(location.url, text)
        feed = Feed(location.url, location.listen_url)
        running = asyncio.create_task(feed.run())
        reader = feed.join(pipeline_id, None)
        state = PipelineState()
        watching = asyncio.create_task(show(_batches(reader), state))
        running.add_done_callback(lambda feed: None if feed.cancelled() else reader.fail(_feed_error(feed.exception())))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, watching.cancel)
        try:
            await watching
        except asyncio.CancelledError:
            return 130
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    return 0 if state.pipeline["state"] == "completed" else 1


def _feed_error(error: BaseException | None) -> ReactorError:
    return ReactorError(f"Internal error while watching: {error!r}.", "Please report it. The pipeline is not affected.")


async def _find_pipeline_id(url: str, text: str) -> UUID:
    with refusals_explained():
        async with connect(url, name="reactor watch", prepares=False) as connection:
            await check_revision(connection)
            if text.isascii() and text.isdigit():
                job = await find_job(connection, min(int(text), 2**63 - 1))
                return UUID(str(job["pipeline_id"]))
    try:
        return UUID(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is neither the id of a pipeline (a UUID) nor of a job (a number).") from None


async def _batches(reader: Reader) -> Batches:
    """Yields batches until the pipeline has ended."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            batch = await reader.next()
    except TimeoutError:
        raise ReactorError(
            "The database does not respond.", "Run `reactor doctor` to diagnose the connection."
        ) from None
    yield batch
    while isinstance(batch, Sign) or not batch.state:
        batch = await reader.next()
        yield batch


async def _draw(batches: Batches, state: PipelineState) -> None:
    console = Console(markup=False, highlight=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        async for batch in batches:
            for _ in state.apply(batch):
                pass
            live.update(draw(state, console.height - 1), refresh=True)


async def _print_lines(batches: Batches, state: PipelineState) -> None:
    async for batch in batches:
        for kind, row, before in state.apply(batch):
            if row["state"] != before.get("state"):
                click.echo(_line(kind, row))
        if isinstance(batch, Sign):
            click.echo(f"{STALE}." if batch is Sign.STALE else "The database responds again.", err=True)
        elif batch.is_snapshot or batch.state:
            click.echo(f"pipeline {state.pipeline['state']}: {count_by_state(list(state.jobs.values()))}")


async def _print_json(batches: Batches, state: PipelineState) -> None:
    async for batch in batches:
        for kind, row, _ in state.apply(batch):
            click.echo(json.dumps({"event": kind} | row))
        click.echo(
            json.dumps({"event": batch.value} if isinstance(batch, Sign) else {"event": "pipeline"} | state.pipeline)
        )


def _line(kind: str, row: Row) -> str:
    if kind == "step":
        name, message = f"job {row['job_id']} step {printable(row['name'])}", row["error"]
    else:
        name = f"job {row['id']} {printable(row['job_type'] or 'no type')}"
        message = row["error"] or row["status_message"]
    where = f" on {printable(row['locked_by'])}" if row["state"] == "running" and kind == "job" else ""
    return f"{name} {row['state']}{where}{f': {printable(first_line(message))}' if message else ''}"
