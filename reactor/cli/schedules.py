"""`reactor schedules`: lists and manages recurring jobs."""

import sys
from typing import Any

import click

from reactor.cli.options import json_option
from reactor.cli.output import print_json, print_table, printable
from reactor.cli.session import current_operator, run_connected
from reactor.duration import format_duration
from reactor.operate import schedules as actions

name_argument = click.argument("name")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def schedules(context: click.Context, as_json: bool) -> None:
    """List recurring jobs; enable, disable, run or remove one.

    \b
      reactor schedules
      reactor schedules disable nightly
      reactor schedules run nightly            submit one job now
      reactor jobs --tag schedule:nightly      its jobs

    Schedules are declared in code (reactor.schedule) or inserted into reactor.schedules: docs/schedules.md.
    """
    if context.invoked_subcommand is not None:
        return
    found = run_connected(actions.list_schedules)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("There are no schedules.", err=True)
    else:
        print_table(
            ["NAME", "TYPE", "SCHEDULE", "TIMEZONE", "NEXT RUN", "LAST RUN", "STATE"],
            [_row(schedule) for schedule in found],
            shrinkable=["NAME", "TYPE", "STATE"],
        )


@schedules.command()
@name_argument
def enable(name: str) -> None:
    """Enable a schedule. Runs that it missed while disabled are skipped."""
    was = run_connected(lambda connection: actions.enable(connection, name, current_operator()))
    click.echo(f"Schedule {printable(name)} is {'already enabled' if was else 'enabled'}.")


@schedules.command()
@name_argument
def disable(name: str) -> None:
    """Disable a schedule. Jobs that it has submitted are not affected."""
    was = run_connected(lambda connection: actions.disable(connection, name, current_operator()))
    click.echo(f"Schedule {printable(name)} is {'disabled' if was else 'already disabled'}.")


@schedules.command()
@name_argument
def remove(name: str) -> None:
    """Remove a schedule; its jobs are kept.

    If code declares the schedule, remove it there first: starting a worker restores it.
    """
    run_connected(lambda connection: actions.remove(connection, name, current_operator()))
    click.echo(f"Schedule {printable(name)} is removed.")


@schedules.command()
@name_argument
@json_option
def run(name: str, as_json: bool) -> None:
    """Submit one job of a schedule now. The schedule may be disabled."""
    job_id, outcome = run_connected(lambda connection: actions.run(connection, name, current_operator()))
    if as_json:
        print_json({"id": job_id, "outcome": outcome})
    else:
        click.echo(f"job {job_id}  {outcome}")
    sys.exit(outcome == "busy")


def _row(schedule: dict[str, Any]) -> tuple[object, ...]:
    zone = schedule["timezone"] if schedule["cron"] else ""
    when = schedule["cron"] or f"every {format_duration(schedule['every_seconds'])}"
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
    return f"enabled; job {schedule['last_job_id']} {schedule['last_job_state'] or 'pruned'}"
