"""`reactor schedules`: recurring jobs."""

import sys
from typing import Any

import click

from reactor.cli.options import json_option
from reactor.cli.output import harmless, print_json, print_table
from reactor.cli.session import ask, operator
from reactor.duration import in_words
from reactor.operate import schedules as actions

name_argument = click.argument("name")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def schedules(context: click.Context, as_json: bool) -> None:
    """List recurring jobs; switch one on or off, run it now, remove it.

    \b
      reactor schedules
      reactor schedules disable nightly
      reactor schedules run nightly            one job now, besides its times
      reactor jobs --tag schedule:nightly      its jobs

    They are declared in code (reactor.schedule), or rows of reactor.schedules: docs/schedules.md.
    """
    if context.invoked_subcommand is not None:
        return
    found = ask(actions.list_schedules)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("There are no schedules.", err=True)
    else:
        print_table(
            ["NAME", "WHAT", "WHEN", "ZONE", "NEXT", "LAST", "STATE"],
            [_row(schedule) for schedule in found],
            stretchy=["NAME", "WHAT", "STATE"],
        )


@schedules.command()
@name_argument
def enable(name: str) -> None:
    """Let it run again, from now on; what it missed is not made up for."""
    was = ask(lambda connection: actions.enable(connection, name, operator()))
    click.echo(f"Schedule {harmless(name)} is {'enabled already' if was else 'enabled'}.")


@schedules.command()
@name_argument
def disable(name: str) -> None:
    """Don't let it run; its jobs that there are go on."""
    was = ask(lambda connection: actions.disable(connection, name, operator()))
    click.echo(f"Schedule {harmless(name)} is {'disabled' if was else 'disabled already'}.")


@schedules.command()
@name_argument
def remove(name: str) -> None:
    """Remove it; its jobs stay. One that code declares comes back when a worker starts: remove it there first."""
    ask(lambda connection: actions.remove(connection, name, operator()))
    click.echo(f"Schedule {harmless(name)} is removed.")


@schedules.command()
@name_argument
@json_option
def run(name: str, as_json: bool) -> None:
    """Insert one of its jobs now, besides its times; also of one that is disabled."""
    job_id, outcome = ask(lambda connection: actions.run(connection, name, operator()))
    if as_json:
        print_json({"id": job_id, "outcome": outcome})
    else:
        click.echo(f"job {job_id}  {outcome}")
    sys.exit(outcome == "busy")


def _row(schedule: dict[str, Any]) -> tuple[object, ...]:
    zone = schedule["timezone"] if schedule["cron"] else ""
    when = schedule["cron"] or f"every {in_words(schedule['every_seconds'])}"
    return (
        schedule["name"],
        schedule["job_type"],
        when,
        zone,
        schedule["next_run_at"] if schedule["enabled"] else None,
        schedule["last_run_at"],
        _state(schedule),
    )


def _state(schedule: dict[str, Any]) -> str:
    if not schedule["enabled"]:
        return "disabled"
    if schedule["error"]:
        return f"error: {schedule['error']}"
    if schedule["last_job_id"] is None:
        return "enabled"
    return f"enabled; job {schedule['last_job_id']} {schedule['last_job_state'] or 'is pruned'}"
