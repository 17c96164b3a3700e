"""`reactor prune`: old pipelines go."""

import time
from dataclasses import asdict

import click

from reactor.cli.options import json_option
from reactor.cli.output import counted, print_json
from reactor.cli.session import ask, operator
from reactor.database.connection import Connection
from reactor.operate.prune import CALENDAR, ENDED, JOB_TYPE, Pruned, Retention, prune_by, prune_every
from reactor.operate.prune import prune as prune_batches

_TELL_SECONDS = 2.0


@click.command()
@click.option("--days", type=click.FloatRange(0, 36500), required=True, help="Only what ended longer ago than this.")
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in ENDED]),
    multiple=True,
    help="Only pipelines whose jobs all ended so; may be given several times.  [default: all of them]",
)
@click.option("--keep-current/--no-keep-current", default=True, help="Keep the newest run of each scope.  [default]")
@click.option("--archive", is_flag=True, help="Move them to reactor.archive, a table with a part for each month.")
@click.option("--every", type=click.Choice(list(CALENDAR)), help="Not now, but from now on so often, by the pods.")
@click.option("--dry-run", is_flag=True, help="Only tell how many there are.")
@json_option
def prune(
    days: float,
    states: tuple[str, ...],
    keep_current: bool,
    archive: bool,
    every: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove pipelines that ended long ago, with their steps and attempts.

    \b
      reactor prune --days 30
      reactor prune --days 7 --state completed --dry-run
      reactor prune --days 30 --every day      the pods do it, every night

    A pipeline goes when all of its jobs have ended long enough ago, and stays otherwise. Claims go on meanwhile, and
    it may be interrupted: what is gone is gone, and the next one goes on with the rest. `reactor schedules` shows what
    --every made; `reactor schedules remove reactor.prune` ends it.
    """
    retention = Retention.from_payload(
        {"days": days, "keep_current": keep_current, "archive": archive} | ({"states": states} if states else {})
    )
    if every and dry_run:
        raise click.UsageError("--every does nothing now, so there is nothing to try: leave out --dry-run or --every.")
    if every:
        ask(lambda connection: prune_every(connection, every, retention, operator()))
        said = f"Every {every} ({CALENDAR[every]} UTC) pods will remove what ended more than {days:g} days ago."
        print_json({"schedule": JOB_TYPE, "cron": CALENDAR[every]} | asdict(retention)) if as_json else click.echo(said)
        return
    total = ask(lambda connection: _prune(connection, retention, dry_run))
    if as_json:
        print_json(asdict(total) | {"dry_run": dry_run})
    else:
        verb = "would be removed" if dry_run else "archived" if archive else "removed"
        pipelines, jobs = counted(total.pipelines, "pipeline"), counted(total.jobs, "job")
        click.echo(f"{pipelines} with {jobs} {verb}.")


async def _prune(connection: Connection, retention: Retention, dry_run: bool) -> Pruned:
    total, told = Pruned(), time.monotonic()
    batches = (
        prune_batches(connection, retention, dry_run=True) if dry_run else prune_by(connection, retention, operator())
    )
    async for total in batches:
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            click.echo(f"{total.pipelines} pipelines so far", err=True)
    return total
