"""`reactor submit`: submits one job."""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from reactor.cli.options import json_option, meta_option
from reactor.cli.output import print_json, printable
from reactor.cli.session import current_operator, run_connected
from reactor.client.submit import submit as submit_job
from reactor.client.submitted import Submitted
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.duration import parse_duration


def read_payload(value: str) -> dict[str, Any]:
    """Reads JSON from the argument itself, a file (@name) or standard input (-)."""
    try:
        payload = json.loads(_text(value))
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"not UTF-8 at byte {error.start}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise click.BadParameter(f"can't be read: {error}.") from None
    if not isinstance(payload, dict):
        raise click.BadParameter('not a JSON object; give one such as {"file": "a.csv"}.')
    return payload


def _text(value: str) -> str:
    if value == "-":
        return sys.stdin.buffer.read().decode()
    return Path(value[1:]).read_bytes().decode() if value.startswith("@") else value


def read_moment(value: str) -> datetime:
    """Parses an ISO time; without an offset it is in the local time zone."""
    try:
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is not an ISO time; write 2026-12-31T08:00 or 2026-12-31T08:00:00+01:00."
        ) from None


def read_duration(value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def read_timeout(value: str) -> float:
    seconds = read_duration(value)
    if seconds <= 0:
        raise click.BadParameter("must be greater than 0; write 45s or 5m.")
    return seconds


@click.command()
@click.argument("job_type", metavar="TYPE")
@click.argument("payload", metavar="[JSON]", type=read_payload, default="{}")
@click.option("--queue", default="default", show_default=True, help="Queue of the job.")
@click.option(
    "--priority", type=click.IntRange(-1000, 1000), default=0, show_default=True, help="Lower numbers run first."
)
@click.option(
    "--run-after",
    metavar="TIME",
    type=read_moment,
    help="Earliest start, as in 2026-12-31T08:00 or 2026-12-31T08:00+01:00.",
)
@click.option(
    "--delay", metavar="DURATION", type=read_duration, help="Time to wait before the start: 90, 45s, 5m, 1h30m, 2d."
)
@click.option(
    "--max-attempts", type=click.IntRange(1, 2**31 - 1), help="Maximum number of attempts.  [default: the handler's]"
)
@click.option(
    "--timeout",
    "timeout_seconds",
    metavar="DURATION",
    type=read_timeout,
    help="Maximum duration of an attempt: 45s, 5m.  [default: the handler's]",
)
@click.option("--tag", "tags", multiple=True, help="Tag for searching; may be repeated.")
@click.option("--scope", help="What the job computes; at most one job per scope runs at a time.")
@click.option("--exclusive", is_flag=True, help="Refuse the job while its scope has an unfinished exclusive job.")
@click.option("--lane", help="On whose behalf, e.g. customer=17; lanes take turns.")
@meta_option("Fact about the job, shown with it and for searching; may be repeated. VALUE is JSON, or a text.")
@click.option(
    "--at-most-once",
    is_flag=True,
    help="Never call the handler again once it has started.  [default: as the handler says]",
)
@click.option(
    "--step",
    "steps",
    multiple=True,
    help="Name of a step, which then exists before a worker plans it; may be repeated.",
)
@click.option("--submitted-by", help="On whose request.  [default: the user and host]")
@click.option("--key", "idempotency_key", help="Idempotency key: the same type and key within 24 h is the same job.")
@click.option("--pipeline", "pipeline_id", type=click.UUID, help="Pipeline to add the job to.  [default: a new one]")
@json_option
def submit(run_after: datetime | None, delay: float | None, as_json: bool, **options: Any) -> None:
    """Submit a job. TYPE selects its handler; JSON is an object, the payload.

    \b
      reactor submit csv_ingest '{"file": "a.csv"}'
      reactor submit csv_ingest @payload.json --tag nightly --delay 5m
      generate | reactor submit csv_ingest - --key upload-17
      reactor submit recalc --scope year=2026 --exclusive

    Prints the job's id, its pipeline, and the outcome: created, existing (the job that has the same key) or busy (the
    job that holds the exclusive scope; exits with 1). Warns if no live pod runs such jobs. Refuses a payload that does
    not fit the schema of a known type (`reactor types`).
    """
    if run_after is not None and delay is not None:
        raise click.UsageError("--run-after and --delay can't be combined.")
    if options["exclusive"] and not options["scope"]:
        raise click.UsageError("--exclusive needs a --scope.")

    async def send(connection: Connection) -> Submitted:
        due = run_after
        if delay is not None:
            due = await connection.fetchval(statements.CLOCK) + timedelta(seconds=delay)
        if options.pop("at_most_once"):
            options["delivery"] = "at_most_once"
        submitted_by = options.pop("submitted_by") or current_operator().who
        return await submit_job(connection, run_after=due, submitted_by=submitted_by, **options)

    job = run_connected(send)
    if as_json:
        print_json(job._asdict() | {"warning": job.warning and job.warning._asdict()})
    elif job.outcome == "busy":
        click.echo(f"busy: job {job.id} (pipeline {job.pipeline_id}) holds the scope. Nothing was submitted.", err=True)
        click.echo(f"`reactor why {job.id}` shows its status.", err=True)
    else:
        click.echo(f"job {job.id}  pipeline {job.pipeline_id}  {job.outcome}")
        if job.warning:
            click.echo(f"warning: {printable(job.warning.message)}", err=True)
    sys.exit(job.outcome == "busy")
