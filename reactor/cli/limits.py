"""`reactor limits`: lists, sets and removes limits."""

from collections.abc import Callable
from typing import Any

import click

from reactor.cli.options import json_option
from reactor.cli.output import print_json, print_table, printable
from reactor.cli.session import current_operator, run_connected
from reactor.cli.submit import read_timeout
from reactor.duration import format_duration
from reactor.operate import limits as actions
from reactor.operate.limits import LimitKey, LimitValues


def _key_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--lane", default="", help="The jobs of this lane; * for those of each lane."),
        click.option("--type", "job_type", default="", help="Jobs of this type.  [default: any]"),
        click.option("--queue", default="", help="Jobs in this queue.  [default: any]"),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def limits(context: click.Context, as_json: bool) -> None:
    """List limits; set or remove one. They hold over all pods.

    \b
      reactor limits
      reactor limits set --type charge --max-running 5
      reactor limits set --type charge --lane '*' --rate 100 --period 1m
      reactor limits set --queue mail --lane customer=17 --max-running 20
      reactor limits remove --type charge

    Limits are declared in code (@register(..., limit=Limit(...))) or inserted into reactor.limits: docs/limits.md.
    """
    if context.invoked_subcommand is not None:
        return
    found = run_connected(actions.list_limits)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("There are no limits.", err=True)
    else:
        print_table(
            ["QUEUE", "TYPE", "LANE", "RUNNING", "LIMIT", "RATE", "BURST"],
            [_row(limit) for limit in found],
            shrinkable=["QUEUE", "TYPE", "LANE"],
        )


@limits.command(name="set")
@_key_options
@click.option("--max-running", type=click.IntRange(0), help="Jobs that may run at the same time.")
@click.option("--rate", type=click.IntRange(1), help="Jobs that may start in a period.")
@click.option("--period", type=read_timeout, default="1s", help="Of the rate: 1s, 1m, 1h.  [default: 1s]")
@click.option("--burst", type=click.IntRange(1), help="Jobs that may start at once.  [default: see docs/limits.md]")
def set_limit(queue: str, job_type: str, lane: str, period: float, **values: Any) -> None:
    """Set a limit, in place of what it was. Without --max-running and --rate, nothing is limited, whatever code
    declares."""
    key = LimitKey(queue, job_type, lane)
    limit = LimitValues(period_seconds=period, **values)
    run_connected(lambda connection: actions.set_limit(connection, key, limit, current_operator()))
    click.echo(f"The limit of {printable(str(key))} is set.")


@limits.command()
@_key_options
def remove(queue: str, job_type: str, lane: str) -> None:
    """Remove a limit.

    If code declares the limit, remove it there first: starting a worker restores it.
    """
    key = LimitKey(queue, job_type, lane)
    declared = run_connected(lambda connection: actions.remove_limit(connection, key, current_operator()))
    again = " Code declares it: the next worker that starts writes it again." if declared else ""
    click.echo(f"The limit of {printable(str(key))} is removed.{again}")


def _row(limit: dict[str, Any]) -> tuple[Any, ...]:
    rate = f"{limit['rate']} per {format_duration(limit['period_seconds'])}" if limit["rate"] else None
    names = (limit["queue"] or "any", limit["job_type"] or "any", limit["lane"])
    return (*names, limit["running"], limit["max_running"], rate, limit["burst"])
