"""`reactor cancel`, `retry`, `recover`, `pause`, `resume` and `drain`: what operators do."""

import sys
from uuid import UUID

import click

from reactor.cli.options import JOB_ID, json_option
from reactor.cli.output import harmless, print_json, print_table
from reactor.cli.session import ask, operator
from reactor.errors import ReactorError
from reactor.job import JobState
from reactor.operate import actions
from reactor.operate.actions import Changed
from reactor.queries.pipelines import find_pipeline
from reactor.queries.queues import find_gates

ids_argument = click.argument("ids", metavar="[ID...]", type=JOB_ID, nargs=-1)
pipeline_option = click.option("--pipeline", type=click.UUID, help="All of this pipeline that it applies to.")
# More than this are counted, not listed.
_MOST_LINES = 50


@click.command()
@ids_argument
@pipeline_option
@click.option("--reason", help="Kept with the jobs, for whoever asks later.  [cancelled by you]")
@json_option
def cancel(ids: tuple[int, ...], pipeline: UUID | None, reason: str | None, as_json: bool) -> None:
    """Cancel jobs that have not finished.

    \b
      reactor cancel 17
      reactor cancel 17 18 19 --reason "wrong file"
      reactor cancel --pipeline 01a1e315-ebab-7566-b11e-eec9b0005e2f

    A running job loses its right to write at once, and its handler is told to stop; its scope is free when the
    handler has stopped. Jobs that need a cancelled one are cancelled too. Exits with 1 if a job is unknown, or had
    ended otherwise, and if there is nothing in a pipeline to cancel.
    """
    _check_named(ids, pipeline)
    by = operator()
    why = reason or f"Cancelled by {by.who}."
    if pipeline:
        done = ask(lambda connection: actions.cancel_pipeline(connection, pipeline, why, by))
        _check_changed(done, pipeline, "cancel")
    else:
        done = ask(lambda connection: actions.cancel(connection, ids, why, by))
    ended = {job_id: state for job_id, state in done.unfit.items() if state is not JobState.CANCELLED}
    if as_json:
        _print_changed("cancelled", done)
    else:
        stops = {JobState.RUNNING: "cancelled; it ran, and its handler is told to stop"}
        _report(
            {job_id: stops.get(was, f"cancelled; it was {was}") for job_id, was in done.jobs.items()},
            {
                job_id: "was cancelled already" if job_id not in ended else f"{state} already: too late to cancel"
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
    """Start finished jobs anew, with a fresh quota of attempts.

    \b
      reactor retry 17
      reactor retry --pipeline 01a1e315-ebab-7566-b11e-eec9b0005e2f      what is not completed of it
      reactor retry $(reactor jobs --state failed --json | jq '.jobs[].id')

    Jobs that were cancelled because of them come back too. Steps that finished are not run again. Exits with 1 if a
    job is unknown or has not finished, and if there is nothing in a pipeline to retry; nothing is changed if an
    exclusive job's scope is taken.
    """
    _check_named(ids, pipeline)
    if pipeline:
        done = ask(lambda connection: actions.retry_pipeline(connection, pipeline, operator()))
        _check_changed(done, pipeline, "retry")
        ids = tuple(done.jobs)
    else:
        done = ask(lambda connection: actions.retry(connection, ids, operator()))
    if as_json:
        _print_changed("started", done)
    else:
        came_along = "{}, back because a job it needs was retried"
        _report(
            {job_id: str(state) if job_id in ids else came_along.format(state) for job_id, state in done.jobs.items()},
            {job_id: f"{state}: only finished jobs can be retried" for job_id, state in done.unfit.items()},
            done.unknown,
        )
    sys.exit(bool(done.unknown or done.unfit))


def _check_named(ids: tuple[int, ...], pipeline: UUID | None) -> None:
    if bool(ids) == bool(pipeline):
        raise click.UsageError("Name jobs by their ids, or one --pipeline.")


def _check_changed(done: Changed, pipeline: UUID, verb: str) -> None:
    if not done.jobs:
        state = ask(lambda connection: find_pipeline(connection, pipeline))["state"]
        raise ReactorError(f"The pipeline is {state}: there is nothing in it to {verb}.")


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
def recover(job_id: int, as_json: bool) -> None:
    """Take a running job from a worker that is dead, and run it again at once.

    \b
      reactor recover 17

    Pods do that by themselves; this does not wait for them, and gives a fresh quota of attempts. Refused (exit code 1)
    while the worker is alive: a handler that hangs is ended by its timeout, or by `reactor cancel` and `reactor retry`.
    """
    ask(lambda connection: actions.recover(connection, job_id, operator()))
    if as_json:
        print_json({"jobs": {job_id: JobState.PENDING}})
    else:
        click.echo(f"Job {job_id} is pending again, with a fresh quota of attempts.")


@click.command()
@click.argument("queue", required=False)
@json_option
def pause(queue: str | None, as_json: bool) -> None:
    """Take no more jobs from a QUEUE; what runs goes on. Without a QUEUE: list those that are paused or limited.

    \b
      reactor pause imports
      reactor pause
    """
    if queue is not None:
        was = ask(lambda connection: actions.pause(connection, queue, operator()))
        _say({"queue": queue, "paused": True, "was_paused": was}, as_json, _paused(queue, was))
        return
    gates = ask(find_gates)
    if as_json:
        print_json(gates.queues)
    elif not gates.queues:
        click.echo("No queue is paused or has a limit.", err=True)
    else:
        print_table(
            ["QUEUE", "PAUSED", "RUNNING", "LIMIT"],
            [(gate["queue"], gate["paused"], gate["running"], gate["max_running"]) for gate in gates.queues],
            stretchy=["QUEUE"],
        )


@click.command()
@click.argument("queue")
@json_option
def resume(queue: str, as_json: bool) -> None:
    """Take jobs from a paused QUEUE again.

    \b
      reactor resume imports
    """
    was = ask(lambda connection: actions.resume(connection, queue, operator()))
    said = f"Queue {harmless(queue)} is open again." if was else f"Queue {harmless(queue)} was not paused."
    _say({"queue": queue, "paused": False, "was_paused": was}, as_json, said)


@click.command()
@click.argument("switch", metavar="[on|off]", type=click.Choice(["on", "off"]), required=False)
@json_option
def drain(switch: str | None, as_json: bool) -> None:
    """Let no pod take any job, for maintenance: running jobs end, new ones are kept. Alone: tell how it is.

    \b
      reactor drain on
      reactor jobs --state running     until there are none
      reactor drain off
    """
    if switch is None:
        draining = ask(find_gates).draining
        said = "Draining is on: no pod takes a job." if draining else "Draining is off."
        _say({"draining": draining}, as_json, said)
        return
    on = switch == "on"
    was = ask(lambda connection: actions.drain(connection, on, operator()))
    said = "no pod takes a job; what runs goes on" if on else "pods take jobs"
    _say(
        {"draining": on, "was_draining": was},
        as_json,
        f"Draining is {switch}{' already' if was == on else ''}: {said}.",
    )


def _paused(queue: str, was: bool) -> str:
    return f"Queue {harmless(queue)} is paused{' already' if was else ''}: what runs goes on, nothing more is taken."


def _say(data: dict[str, object], as_json: bool, sentence: str) -> None:
    print_json(data) if as_json else click.echo(sentence)


def _print_changed(verb: str, done: Changed) -> None:
    print_json({verb: done.jobs, "unfit": done.unfit, "unknown": done.unknown})


def _report(done: dict[int, str], left: dict[int, str], unknown: tuple[int, ...]) -> None:
    """What was done on standard output, what was not on standard error."""
    for lines, is_error in ((done, False), (left | dict.fromkeys(unknown, "unknown: there is no such job"), True)):
        for job_id in sorted(lines)[:_MOST_LINES]:
            click.echo(f"job {job_id}: {lines[job_id]}", err=is_error)
        if len(lines) > _MOST_LINES:
            click.echo(f"and {len(lines) - _MOST_LINES} more", err=is_error)
