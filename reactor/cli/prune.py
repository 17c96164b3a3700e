"""`reactor prune`: removes old pipelines."""

from dataclasses import asdict

import click

from reactor.cli.options import json_option
from reactor.cli.output import ProgressReporter, counted, print_json
from reactor.cli.session import current_operator, run_connected
from reactor.database.connection import Connection
from reactor.operate.prune import (
    CRON_OF_PERIOD,
    FINAL_STATES,
    JOB_TYPE,
    Pruned,
    Retention,
    prune_and_audit,
    schedule_pruning,
)
from reactor.operate.prune import prune as prune_batches


@click.command()
@click.option(
    "--days",
    type=click.FloatRange(0, 36500),
    required=True,
    help="Only pipelines that ended more than this many days ago.",
)
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in FINAL_STATES]),
    multiple=True,
    help="Only pipelines whose jobs all ended in this state; may be repeated.  [default: any]",
)
@click.option("--keep-current/--no-keep-current", default=True, help="Keep the newest run of each scope.  [default]")
@click.option("--archive", is_flag=True, help="Move them to reactor.archive, a table partitioned by month.")
@click.option("--every", type=click.Choice(list(CRON_OF_PERIOD)), help="Schedule recurring pruning instead.")
@click.option("--dry-run", is_flag=True, help="Count only; remove nothing.")
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
    """Remove pipelines that ended long ago.

    \b
      reactor prune --days 30
      reactor prune --days 7 --state completed --dry-run
      reactor prune --days 30 --every day      the pods prune every night

    A pipeline is removed, with its jobs, steps and attempts, when all of its jobs ended long enough ago. Pods keep
    claiming jobs meanwhile. The command can be interrupted and run again, since it removes batch by batch.

    `reactor schedules` lists the schedule that --every creates; `reactor schedules remove reactor.prune` deletes it.
    """
    retention = Retention.from_payload(
        {"days": days, "keep_current": keep_current, "archive": archive} | ({"states": states} if states else {})
    )
    if every and dry_run:
        raise click.UsageError("--every and --dry-run can't be combined.")
    if every:
        run_connected(lambda connection: schedule_pruning(connection, every, retention, current_operator()))
        cron = CRON_OF_PERIOD[every]
        sentence = f"Every {every} ({cron} UTC), the pods remove pipelines that ended more than {days:g} days ago."
        data = {"schedule": JOB_TYPE, "cron": cron} | asdict(retention)
        print_json(data) if as_json else click.echo(sentence)
        return
    total = run_connected(lambda connection: _prune(connection, retention, dry_run))
    if as_json:
        print_json(asdict(total) | {"dry_run": dry_run})
    else:
        verb = "would be removed" if dry_run else "archived" if archive else "removed"
        pipelines, jobs = counted(total.pipelines, "pipeline"), counted(total.jobs, "job")
        click.echo(f"{pipelines} with {jobs} {verb}.")


async def _prune(connection: Connection, retention: Retention, dry_run: bool) -> Pruned:
    total, progress = Pruned(), ProgressReporter()
    batches = (
        prune_batches(connection, retention, dry_run=True)
        if dry_run
        else prune_and_audit(connection, retention, current_operator())
    )
    async for total in batches:
        progress.report(f"{total.pipelines} pipelines so far")
    return total
