"""`reactor jobs` and `reactor why`: what there is, and why it is not running."""

import shlex
import time
from typing import Any

import click

from reactor.cli.options import JOB_ID, json_option
from reactor.cli.output import harmless, percent, print_fields, print_json, print_table
from reactor.cli.session import ask
from reactor.database.connection import Connection
from reactor.duration import in_words
from reactor.error_text import first_line
from reactor.job import JobState
from reactor.queries.jobs import Filters, Page, find_job, list_jobs
from reactor.queries.why import why as find_reasons

_TELL_SECONDS = 2.0
_FIRST_COLUMNS = ("number", "name", "state", "outcome", "pod")
_LAST_COLUMNS = ("attempt_id", "worker_id", "result", "error")


@click.command()
@click.argument("job_id", metavar="[ID]", type=JOB_ID, required=False)
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--type", "job_type", help="Only jobs of this type.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--scope", help="Only jobs of this scope.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--pipeline", "pipeline_id", type=click.UUID, help="Only jobs of this pipeline.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first.")
@click.option("--before", type=JOB_ID, metavar="ID", help="Only jobs older than this one: the next page.")
@json_option
def jobs(job_id: int | None, limit: int, before: int | None, as_json: bool, **filters: Any) -> None:
    """List the newest jobs, or show one with all that is known about it.

    \b
      reactor jobs                        the newest 20
      reactor jobs --state running        what runs now
      reactor jobs --state failed --type csv_ingest --limit 100
      reactor jobs 17                     one job: payload, result, steps, attempts
      reactor jobs --json | jq '.jobs[].id'

    With --json a list is {"jobs": [...], "before": ID}; give that ID to --before for the next page. It is null on
    the last one.
    """
    chosen = {name: value for name, value in filters.items() if value is not None}
    if job_id is not None:
        if chosen or before:
            raise click.UsageError("an ID names one job; filters choose among many. Give one or the other.")
        job = ask(lambda connection: find_job(connection, job_id))
        print_json(job) if as_json else _print_job(job)
        return
    page = ask(lambda connection: _look(connection, Filters(**chosen), limit, before))
    print_json(page) if as_json else _print_page(page, limit, chosen)


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
def why(job_id: int, as_json: bool) -> None:
    """Tell why a job is not running, where it runs, or how it ended.

    \b
      reactor why 17
      reactor why 17 --json | jq -r '.reasons[].code'

    docs/operating.md lists the reasons and what to do about each.
    """
    found = ask(lambda connection: find_reasons(connection, job_id))
    if as_json:
        print_json(found)
        return
    click.echo(f"Job {found.job_id} ({harmless(found.job_type or 'no type')}) is {found.state}.")
    for reason in found.reasons:
        click.echo(f"  {harmless(reason.message, lines=True)}")


async def _look(connection: Connection, filters: Filters, limit: int, before: int | None) -> Page:
    """On and on, until the page is full or there is nothing left to look at."""
    page, told = await list_jobs(connection, filters, limit, before), time.monotonic()
    while page.before is not None and len(page.jobs) < limit:
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            click.echo(f"looking at jobs before {page.before}, {len(page.jobs)} found so far", err=True)
        more = await list_jobs(connection, filters, limit - len(page.jobs), page.before)
        page = Page(page.jobs + more.jobs, more.before)
    return page


def _print_page(page: Page, limit: int, chosen: dict[str, Any]) -> None:
    if not page.jobs:
        click.echo("No such jobs." if chosen else "There are no jobs.", err=True)
        return
    print_table(
        ["ID", "STATE", "TYPE", "QUEUE", "TRIES", "AGE", "POD", "NOTE"],
        [
            (
                job["id"],
                job["state"],
                job["job_type"] or "(none)",
                job["queue"],
                f"{job['attempts']}/{job['quota'] or '-'}",
                in_words(job["age_seconds"]),
                job["locked_by"],
                _note(job),
            )
            for job in page.jobs
        ],
        stretchy=["TYPE", "QUEUE", "POD", "NOTE"],
    )
    if page.before is not None:
        names = {"job_type": "type", "pipeline_id": "pipeline"}
        flags = [f"--{names.get(name, name)}={value}" for name, value in chosen.items()]
        command = shlex.join(["reactor", "jobs", *flags, f"--limit={limit}", f"--before={page.before}"])
        click.echo(f"\nThere are more: {harmless(command)}", err=True)


def _note(job: dict[str, Any]) -> str:
    """The error of what failed; what the handler says of the rest."""
    if job["state"] in (JobState.FAILED, JobState.CANCELLED):
        return first_line(job["error"] or "")
    if job["state"] == JobState.PENDING and job["error"]:
        return f"last error: {first_line(job['error'])}"
    progress = "" if job["progress"] is None else percent(job["progress"])
    return " ".join(filter(None, [progress, job["status_message"]]))


def _print_job(job: dict[str, Any]) -> None:
    lists = ("dependencies", "steps", "earlier_attempts")
    print_fields({name: value for name, value in job.items() if name not in lists})
    for name in lists:
        if job[name]:
            columns = sorted(job[name][0], key=_place)
            click.echo()
            click.secho(name.replace("_", " "), bold=True)
            print_table(
                [column.upper() for column in columns],
                [[_in_a_line(row[column]) for column in columns] for row in job[name]],
                stretchy=["ERROR", "RESULT", "NAME", "ATTEMPT_ID"],
            )


def _place(column: str) -> int:
    """JSON from the database comes in no order that means anything."""
    if column in _FIRST_COLUMNS:
        return _FIRST_COLUMNS.index(column) - len(_FIRST_COLUMNS)
    return _LAST_COLUMNS.index(column) + 1 if column in _LAST_COLUMNS else 0


def _in_a_line(value: object) -> object:
    return first_line(value) if isinstance(value, str) else value
