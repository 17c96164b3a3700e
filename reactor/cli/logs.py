"""`reactor logs`: prints what a job's handlers logged, and follows it until the job has ended."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, get_args

import click

from reactor.cli.options import JOB_ID, json_option
from reactor.cli.output import encode_json, printable
from reactor.cli.signals import run_until_stopped
from reactor.database.connection import connect
from reactor.database.jsonb import decoded
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.refusals import refusals_explained
from reactor.database.revision import check_revision
from reactor.embedded.locate import locate
from reactor.job_log import Level
from reactor.queries.logs import LogFilters, list_logs
from reactor.settings import read_settings

POLL_SECONDS = 0.5
_PAGE = 1000
_INTERRUPTED = 130
_COLOURS = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "red"}
_INDENTED = "\n    "


@click.command()
@click.argument("job_id", metavar="JOB", type=JOB_ID)
@click.option("--follow", "-f", is_flag=True, help="Print further lines as they are stored, until the job has ended.")
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Only lines of attempt N.")
@click.option("--step", metavar="NAME", help="Only lines of this step.")
@click.option("--level", type=click.Choice([level for level in get_args(Level) if level != "off"]), help="At least.")
@json_option
def logs(job_id: int, follow: bool, attempt: int | None, step: str | None, level: Level | None, as_json: bool) -> None:
    """Print what a job's handlers logged, oldest first.

    \b
      reactor logs 17
      reactor logs 17 --follow                    across retries, until the job has ended
      reactor logs 17 --attempt 2 --level warning
      reactor logs 17 --json | jq -r 'select(.step == "read") | .message'

    With --json, each line is a JSON object. docs/handlers.md describes what is stored, and the limits.

    Exit codes: 0 everything was printed; 1 there is no such job; 130 stopped with Ctrl-C.
    """
    filters = LogFilters(attempt, step, level)
    printing = _print(job_id, filters, follow, as_json)
    sys.exit(run_until_stopped(printing) if follow else asyncio.run(printing))


async def _print(job_id: int, filters: LogFilters, follow: bool, as_json: bool) -> int:
    shown: tuple[object, int] | None = None
    try:
        async for line in _lines(job_id, filters, follow):
            if as_json:
                click.echo(encode_json(line))
                continue
            if (attempt := (line["attempt_id"], line["attempt"])) != shown:
                shown = attempt
                click.secho(f"attempt {line['attempt']}", bold=True)
            click.echo(_text(line))
    except asyncio.CancelledError:
        return _INTERRUPTED
    if shown is None and not as_json:
        click.echo("No such lines are stored.", err=True)
    return 0


async def _lines(job_id: int, filters: LogFilters, follow: bool) -> AsyncIterator[dict[str, Any]]:
    async with locate(read_settings()) as location:
        with refusals_explained():
            async with connect(location.url, name="reactor logs", prepares=False) as connection:
                await check_revision(connection)
            reading = ReconnectingConnection(location.url, "reactor logs")
            try:
                after = 0
                while True:
                    page, _ = await reading.retry(
                        partial(list_logs, job_id=job_id, filters=filters, limit=_PAGE, after=after)
                    )
                    for line in page.lines:
                        yield line | {"fields": decoded(line["fields"])}
                    after = page.after
                    if not page.has_more:
                        if not follow or page.job_state.is_terminal:
                            return
                        await asyncio.sleep(POLL_SECONDS)
            finally:
                await reading.close()


def _text(line: dict[str, Any]) -> str:
    """Lines of a message, and those of a traceback, are indented: none can be taken for another line of the log."""
    fields = dict(line["fields"] or {})
    exception = fields.pop("exception", None)
    level = click.style(f"{line['level']:<8}", fg=_COLOURS.get(line["level"]), bold=line["level"] == "critical")
    step = click.style(f"[{printable(line['step'])}] ", dim=True) if line["step"] is not None else ""
    values = "".join(f"  {printable(name)}={printable(_value(value))}" for name, value in fields.items())
    text = f"{_time(line)} {level} {step}{_indented(line['message'])}{click.style(values, dim=True)}"
    return text if exception is None else f"{text}{_INDENTED}{_indented(exception)}"


def _time(line: dict[str, Any]) -> str:
    at: str = line["at"].isoformat(sep=" ", timespec="milliseconds")
    return at.replace("+00:00", "Z")


def _indented(text: object) -> str:
    return printable(text, keep_newlines=True).replace("\n", _INDENTED)


def _value(value: object) -> str:
    is_plain = isinstance(value, str) and value and not set(value) & set(' "=\t\n')
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)
