"""`reactor jobs` and `reactor why`: lists jobs, shows one, and explains why it is not running."""

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click

from reactor.cli.options import JOB_ID, json_option, meta_option
from reactor.cli.output import ProgressReporter, percent, print_fields, print_json, print_table, printable
from reactor.cli.session import run_connected
from reactor.database.connection import Connection
from reactor.duration import format_duration
from reactor.error_text import first_line
from reactor.job import JobState
from reactor.queries.jobs import Filters, Page, find_job, list_jobs
from reactor.queries.why import why as find_reasons

_FIRST_COLUMNS = ("number", "name", "state", "outcome", "pod")
_LAST_COLUMNS = ("attempt_id", "worker_id", "result", "error")
_COUNTS = ("total", "completed", "running", "pending", "failed", "skipped", "current")
_DURATIONS = ("waited", "queued", "ran", "total")


@click.command()
@click.argument("job_id", metavar="[ID]", type=JOB_ID, required=False)
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--type", "job_type", help="Only jobs of this type.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--scope", help="Only jobs of this scope.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--pipeline", "pipeline_id", type=click.UUID, help="Only jobs of this pipeline.")
@meta_option("Only jobs with this fact in their meta; may be repeated. VALUE is JSON, or a text.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of jobs, newest first."
)
@click.option("--before", type=JOB_ID, metavar="ID", help="Only jobs older than this one, for the next page.")
@json_option
def jobs(job_id: int | None, limit: int, before: int | None, as_json: bool, **filters: Any) -> None:
    """List the newest jobs, or show one in full.

    \b
      reactor jobs                        the newest 20
      reactor jobs --state running        those running now
      reactor jobs --state failed --type csv_ingest --limit 100
      reactor jobs --meta region=eu --meta year=2026
      reactor jobs 17                     one job: payload, result, steps, attempts
      reactor jobs --json | jq '.jobs[].id'

    With --json, a list is {"jobs": [...], "before": ID}. Pass that ID to --before for the next page; it is null on the
    last page.
    """
    chosen = {name: value for name, value in filters.items() if value is not None}
    if job_id is not None:
        if chosen or before:
            raise click.UsageError("An ID can't be combined with filters.")
        job = run_connected(lambda connection: find_job(connection, job_id))
        print_json(job) if as_json else _print_job(job)
        return
    page = run_connected(lambda connection: _list_until_full(connection, Filters(**chosen), limit, before))
    print_json(page) if as_json else _print_page(page, limit, chosen)


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
def why(job_id: int, as_json: bool) -> None:
    """Explain why a job is not running, or how it ended.

    \b
      reactor why 17
      reactor why 17 --json | jq -r '.reasons[].code'

    docs/operating.md lists the reasons and what to do about each.
    """
    found = run_connected(lambda connection: find_reasons(connection, job_id))
    if as_json:
        print_json(found)
        return
    click.echo(f"Job {found.job_id} ({printable(found.job_type or 'no type')}) is {found.state}.")
    for reason in found.reasons:
        click.echo(f"  {printable(reason.message, keep_newlines=True)}")


async def _list_until_full(connection: Connection, filters: Filters, limit: int, before: int | None) -> Page:
    """Fetches short pages until there are `limit` jobs or no more to scan."""
    progress = ProgressReporter()
    page = await list_jobs(connection, filters, limit, before)
    while page.before is not None and len(page.jobs) < limit:
        progress.report(f"searching jobs before {page.before}, {len(page.jobs)} found so far")
        more = await list_jobs(connection, filters, limit - len(page.jobs), page.before)
        page = Page(page.jobs + more.jobs, more.before)
    return page


def _print_page(page: Page, limit: int, chosen: dict[str, Any]) -> None:
    if not page.jobs:
        click.echo("No matching jobs." if chosen else "There are no jobs.", err=True)
        return
    print_table(
        ["ID", "STATE", "TYPE", "QUEUE", "ATTEMPTS", "AGE", "POD", "MESSAGE"],
        [
            (
                job["id"],
                job["state"],
                job["job_type"] or "(none)",
                job["queue"],
                f"{job['attempts']}/{job['quota'] or '-'}",
                format_duration(job["age_seconds"]),
                job["locked_by"],
                _message(job),
            )
            for job in page.jobs
        ],
        shrinkable=["TYPE", "QUEUE", "POD", "MESSAGE"],
    )
    if page.before is not None:
        names = {"job_type": "type", "pipeline_id": "pipeline"}
        flags = [f"--{names.get(name, name)}={value}" for name, value in chosen.items() if name != "meta"]
        flags += [f"--meta={name}={json.dumps(value)}" for name, value in chosen.get("meta", {}).items()]
        command = shlex.join(["reactor", "jobs", *flags, f"--limit={limit}", f"--before={page.before}"])
        click.echo(f"\nMore: {printable(command)}", err=True)


def _message(job: dict[str, Any]) -> str:
    """The error of a failed or cancelled job; otherwise progress and the handler's message."""
    if job["state"] in (JobState.FAILED, JobState.CANCELLED):
        return first_line(job["error"] or "")
    if job["state"] == JobState.PENDING and job["error"]:
        return f"last error: {first_line(job['error'])}"
    progress = "" if job["progress"] is None else percent(job["progress"])
    return " ".join(filter(None, [progress, job["status_message"]]))


def _print_job(job: dict[str, Any]) -> None:
    lists = ("dependencies", "steps", "earlier_attempts")
    fields = {name: value for name, value in job.items() if name not in lists}
    counts = job["step_counts"] or {}
    fields["step_counts"] = _in_words({name: counts.get(name) for name in _COUNTS}, str)
    fields["durations"] = _in_words({name: job["durations"][name] for name in _DURATIONS}, format_duration)
    print_fields(fields)
    for row in job["earlier_attempts"]:
        durations = row.pop("durations")
        row |= {name: "" if durations[name] is None else format_duration(durations[name]) for name in _DURATIONS}
    for row in job["steps"]:
        row["ran"] = "" if row["ran"] is None else format_duration(row["ran"])
    for name in lists:
        if job[name]:
            columns = sorted(job[name][0], key=_column_order)
            click.echo()
            click.secho(name.replace("_", " "), bold=True)
            print_table(
                [column.upper() for column in columns],
                [[_single_line(row[column]) for column in columns] for row in job[name]],
                shrinkable=["ERROR", "RESULT", "NAME", "ATTEMPT_ID"],
            )


def _in_words(values: Mapping[str, Any], format_value: Callable[[Any], str]) -> str:
    """For example `total 12, pending 3`; without those that are nothing."""
    return ", ".join(f"{name} {format_value(value)}" for name, value in values.items() if value)


def _column_order(column: str) -> int:
    """Sorts the columns, since the keys of jsonb objects have no meaningful order."""
    if column in _FIRST_COLUMNS:
        return _FIRST_COLUMNS.index(column) - len(_FIRST_COLUMNS)
    return _LAST_COLUMNS.index(column) + 1 if column in _LAST_COLUMNS else 0


def _single_line(value: object) -> object:
    return first_line(value) if isinstance(value, str) else value
