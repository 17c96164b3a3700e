"""`reactor watch`: a pipeline on the terminal until it ends."""

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
from reactor.cli.output import harmless
from reactor.cli.pipeline_state import Picture, Row, by_state
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

_FIRST_SECONDS = 10.0


@click.command()
@click.argument("pipeline", metavar="PIPELINE")
@json_option
def watch(pipeline: str, as_json: bool) -> None:
    """Show a pipeline's progress live, until it ends. PIPELINE is its id, or the id of one of its jobs.

    \b
      reactor watch 01a1e315-ebab-7566-b11e-eec9b0005e2f
      reactor watch 17
      reactor watch 17 --json | jq -c 'select(.event == "job") | [.id, .state]'

    Where standard output is no terminal, a line is printed for each job and step that changes its state. With --json
    it is a JSON object a line: rows as they change, each with its "event" (job, step or pipeline), and the events stale
    and fresh when the database no longer answers and when it does again.

    Exit codes: 0 the pipeline completed; 1 it ended otherwise, or there is none; 130 stopped with Ctrl-C, which does
    nothing to the pipeline.
    """
    # That the database is away is told in what is shown; its log would run through it.
    logging.getLogger("reactor").setLevel(logging.ERROR)
    show = _print_json if as_json else _draw if sys.stdout.isatty() else _print_lines
    sys.exit(asyncio.run(_watch(pipeline, show)))


Batches = AsyncIterator[Batch | Sign]
Show = Callable[[Batches, Picture], Coroutine[Any, Any, None]]


async def _watch(text: str, show: Show) -> int:
    async with locate(read_settings()) as location:
        pipeline_id = await _find(location.url, text)
        feed = Feed(location.url, location.listen_url)
        running = asyncio.create_task(feed.run())
        reader = feed.join(pipeline_id, None)
        picture = Picture()
        watching = asyncio.create_task(show(_batches(reader), picture))
        running.add_done_callback(lambda feed: None if feed.cancelled() else reader.fail(_broken(feed.exception())))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, watching.cancel)
        try:
            await watching
        except asyncio.CancelledError:
            return 130
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    return 0 if picture.pipeline["state"] == "completed" else 1


def _broken(error: BaseException | None) -> ReactorError:
    return ReactorError(f"Watching broke: {error!r}.", "Please report it; the pipeline goes on.")


async def _find(url: str, text: str) -> UUID:
    with refusals_explained():
        async with connect(url, name="reactor watch", prepares=False) as connection:
            await check_revision(connection)
            if text.isascii() and text.isdigit():
                job = await find_job(connection, min(int(text), 2**63 - 1))
                return UUID(str(job["pipeline_id"]))
    try:
        return UUID(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is neither a pipeline's id (a UUID) nor a job's (a number).") from None


async def _batches(reader: Reader) -> Batches:
    """Until the pipeline has ended."""
    try:
        async with asyncio.timeout(_FIRST_SECONDS):
            batch = await reader.next()
    except TimeoutError:
        raise ReactorError("The database does not answer.", "`reactor doctor` may tell why.") from None
    yield batch
    while isinstance(batch, Sign) or not batch.state:
        batch = await reader.next()
        yield batch


async def _draw(batches: Batches, picture: Picture) -> None:
    console = Console(markup=False, highlight=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        async for batch in batches:
            for _ in picture.take(batch):
                pass
            live.update(draw(picture, console.height - 1), refresh=True)


async def _print_lines(batches: Batches, picture: Picture) -> None:
    async for batch in batches:
        for kind, row, before in picture.take(batch):
            if row["state"] != before.get("state"):
                click.echo(_line(kind, row))
        if isinstance(batch, Sign):
            click.echo(f"{STALE}." if batch is Sign.STALE else "The database answers again.", err=True)
        elif batch.is_snapshot or batch.state:
            click.echo(f"pipeline {picture.pipeline['state']}: {by_state(list(picture.jobs.values()))}")


async def _print_json(batches: Batches, picture: Picture) -> None:
    async for batch in batches:
        for kind, row, _ in picture.take(batch):
            click.echo(json.dumps({"event": kind} | row))
        click.echo(
            json.dumps({"event": batch.value} if isinstance(batch, Sign) else {"event": "pipeline"} | picture.pipeline)
        )


def _line(kind: str, row: Row) -> str:
    if kind == "step":
        named, said = f"job {row['job_id']} step {harmless(row['name'])}", row["error"]
    else:
        named = f"job {row['id']} {harmless(row['job_type'] or 'no type')}"
        said = row["error"] or row["status_message"]
    where = f" on {harmless(row['locked_by'])}" if row["state"] == "running" and kind == "job" else ""
    return f"{named} {row['state']}{where}{f': {harmless(first_line(said))}' if said else ''}"
