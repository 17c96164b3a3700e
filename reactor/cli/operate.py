"""Operators' commands: `reactor cancel`, `retry`, `recover`, `pause`, `resume` and `drain`."""

import sys
from uuid import UUID

import click

from reactor.cli.options import JOB_ID, json_option
from reactor.cli.output import print_json, print_table, printable
from reactor.cli.session import current_operator, run_connected
from reactor.errors import ReactorError
from reactor.job import JobState
from reactor.operate import actions
from reactor.operate.actions import Changed
from reactor.queries.pipelines import find_pipeline
from reactor.queries.queues import find_restrictions

ids_argument = click.argument("ids", metavar="[ID...]", type=JOB_ID, nargs=-1)
pipeline_option = click.option("--pipeline", type=click.UUID, help="All jobs of this pipeline that it applies to.")
# Further lines are only counted.
_MAX_LINES = 50


@click.command()
@ids_argument
@pipeline_option
@click.option("--reason", help="Stored as the jobs' error.  [default: cancelled by USER]")
@json_option
def cancel(ids: tuple[int, ...], pipeline: UUID | None, reason: str | None, as_json: bool) -> None:
    """Cancel jobs that have not finished.

    \b
      reactor cancel 17
      reactor cancel 17 18 19 --reason "wrong file"
      reactor cancel --pipeline 01a1e315-ebab-7566-b11e-eec9b0005e2f

    A running job can no longer write anything, and its handler is asked to stop; its scope is free when the handler
    has stopped. Jobs that depend on a cancelled job are cancelled too. Exits with 1 if a job is unknown or had already
    finished, or if a pipeline has no job to cancel.
    """
    _check_named(ids, pipeline)
    by = current_operator()
    why = reason or f"Cancelled by {by.who}."
    if pipeline:
        done = run_connected(lambda connection: actions.cancel_pipeline(connection, pipeline, why, by))
        _check_changed(done, pipeline, "cancel")
    else:
        done = run_connected(lambda connection: actions.cancel(connection, ids, why, by))
    ended = {job_id: state for job_id, state in done.unfit.items() if state is not JobState.CANCELLED}
    if as_json:
        _print_changed("cancelled", done)
    else:
        stops = {JobState.RUNNING: "cancelled while running; its handler is asked to stop"}
        _report(
            {job_id: stops.get(was, f"cancelled; it was {was}") for job_id, was in done.jobs.items()},
            {
                job_id: "already cancelled" if job_id not in ended else f"already {state}: it can't be cancelled"
                for job_id, state in done.unfit.items()
            },
            done.unknown,
        )
    sys.exit(bool(done.unknown or ended))


@click.command()
@ids_argument
@pipeline_option
@json_option
def retry(ids: tuple[int, ...], pipeline: UUID | None, as_json: bool) -> None:
    """Run finished jobs again, with a fresh quota of attempts.

    \b
      reactor retry 17
      reactor retry --pipeline 01a1e315-ebab-7566-b11e-eec9b0005e2f      its jobs that are not completed
      reactor retry $(reactor jobs --state failed --json | jq '.jobs[].id')

    Jobs that were cancelled because of them are restored. Completed steps are not run again. Exits with 1 if a job is
    unknown or has not finished, or if a pipeline has no job to retry. Nothing is changed if the scope of an exclusive
    job is taken.
    """
    _check_named(ids, pipeline)
    if pipeline:
        done = run_connected(lambda connection: actions.retry_pipeline(connection, pipeline, current_operator()))
        _check_changed(done, pipeline, "retry")
        ids = tuple(done.jobs)
    else:
        done = run_connected(lambda connection: actions.retry(connection, ids, current_operator()))
    if as_json:
        _print_changed("started", done)
    else:
        restored = "{}, restored because a job it depends on is retried"
        _report(
            {job_id: str(state) if job_id in ids else restored.format(state) for job_id, state in done.jobs.items()},
            {job_id: f"{state}: only finished jobs can be retried" for job_id, state in done.unfit.items()},
            done.unknown,
        )
    sys.exit(bool(done.unknown or done.unfit))


def _check_named(ids: tuple[int, ...], pipeline: UUID | None) -> None:
    if bool(ids) == bool(pipeline):
        raise click.UsageError("Give the IDs of jobs, or one --pipeline.")


def _check_changed(done: Changed, pipeline: UUID, verb: str) -> None:
    if not done.jobs:
        state = run_connected(lambda connection: find_pipeline(connection, pipeline))["state"]
        raise ReactorError(f"The pipeline is {state}: it has no job to {verb}.")


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
def recover(job_id: int, as_json: bool) -> None:
    """Take a running job from a dead worker and run it again now.

    \b
      reactor recover 17

    Pods do this automatically within the lease; this command does it immediately and gives the job a fresh quota of
    attempts. It is refused (exit code 1) while the worker is alive: a hanging handler is stopped by its timeout, or by
    `reactor cancel` followed by `reactor retry`.
    """
    run_connected(lambda connection: actions.recover(connection, job_id, current_operator()))
    if as_json:
        print_json({"jobs": {job_id: JobState.PENDING}})
    else:
        click.echo(f"Job {job_id} is pending again, with a fresh quota of attempts.")


@click.command()
@click.argument("queue", required=False)
@json_option
def pause(queue: str | None, as_json: bool) -> None:
    """Pause a QUEUE: running jobs continue, no new ones are claimed. Without QUEUE, list paused and limited queues.

    \b
      reactor pause imports
      reactor pause
    """
    if queue is not None:
        was = run_connected(lambda connection: actions.pause(connection, queue, current_operator()))
        _print_result({"queue": queue, "paused": True, "was_paused": was}, as_json, _paused(queue, was))
        return
    restrictions = run_connected(find_restrictions)
    if as_json:
        print_json(restrictions.queues)
    elif not restrictions.queues:
        click.echo("No queue is paused or has a limit.", err=True)
    else:
        print_table(
            ["QUEUE", "PAUSED", "RUNNING", "LIMIT"],
            [
                (queue["queue"], queue["paused"], queue["running"], queue["max_running"])
                for queue in restrictions.queues
            ],
            shrinkable=["QUEUE"],
        )


@click.command()
@click.argument("queue")
@json_option
def resume(queue: str, as_json: bool) -> None:
    """Resume a paused QUEUE.

    \b
      reactor resume imports
    """
    was = run_connected(lambda connection: actions.resume(connection, queue, current_operator()))
    sentence = f"Queue {printable(queue)} is resumed." if was else f"Queue {printable(queue)} was not paused."
    _print_result({"queue": queue, "paused": False, "was_paused": was}, as_json, sentence)


@click.command()
@click.argument("switch", metavar="[on|off]", type=click.Choice(["on", "off"]), required=False)
@json_option
def drain(switch: str | None, as_json: bool) -> None:
    """Stop all pods from claiming jobs, for maintenance. Without an argument, show whether draining is on.

    \b
      reactor drain on
      reactor jobs --state running     wait until there are none
      reactor drain off

    Running jobs continue. Jobs that are inserted in the meantime are kept and run later.
    """
    if switch is None:
        draining = run_connected(find_restrictions).draining
        sentence = "Draining is on: pods claim no jobs." if draining else "Draining is off."
        _print_result({"draining": draining}, as_json, sentence)
        return
    on = switch == "on"
    was = run_connected(lambda connection: actions.drain(connection, on, current_operator()))
    effect = "pods claim no jobs; running jobs continue" if on else "pods claim jobs"
    _print_result(
        {"draining": on, "was_draining": was},
        as_json,
        f"Draining is {'already ' if was == on else ''}{switch}: {effect}.",
    )


def _paused(queue: str, was: bool) -> str:
    already = "already " if was else ""
    return f"Queue {printable(queue)} is {already}paused: running jobs continue, no new ones are claimed."


def _print_result(data: dict[str, object], as_json: bool, sentence: str) -> None:
    print_json(data) if as_json else click.echo(sentence)


def _print_changed(verb: str, done: Changed) -> None:
    print_json({verb: done.jobs, "unfit": done.unfit, "unknown": done.unknown})


def _report(changed: dict[int, str], unchanged: dict[int, str], unknown: tuple[int, ...]) -> None:
    """Prints changed jobs to standard output, and the others to standard error."""
    for lines, is_error in ((changed, False), (unchanged | dict.fromkeys(unknown, "no such job"), True)):
        for job_id in sorted(lines)[:_MAX_LINES]:
            click.echo(f"job {job_id}: {lines[job_id]}", err=is_error)
        if len(lines) > _MAX_LINES:
            click.echo(f"and {len(lines) - _MAX_LINES} more", err=is_error)
