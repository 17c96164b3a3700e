"""Records each change of a step: in the attempt's log, in the database, and in the job's progress."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from reactor.error_text import describe
from reactor.handlers.attempt import Attempt
from reactor.handlers.step_log import as_stored, unstorable
from reactor.lifecycle.batch_writer import LOCKED_PAUSE_SECONDS, LONE_LOCK_WAIT_MS
from reactor.lifecycle.steps import StepState, plan_steps, stored_steps
from reactor.outcome import Fail, Retry, Skip, Snooze


async def plan(attempt: Attempt, names: Sequence[str]) -> None:
    """All steps that are to come, so that clients see them from the start."""
    await _add(attempt, names, started=False)
    _report(attempt)


async def begin(attempt: Attempt, name: str) -> bool:
    """A step without a plan. False: an earlier attempt completed it, and it is not to be run."""
    attempt.check()
    await _add(attempt, [name], started=True)
    _report(attempt, name)
    return attempt.step_log.states[name] is not StepState.COMPLETED


async def start(attempt: Attempt, name: str) -> None:
    """A step of the plan."""
    attempt.check()
    await _record(attempt, name, StepState.RUNNING)


async def succeed(attempt: Attempt, name: str, result: str | None) -> Any:
    """Returns what a later attempt would get: the result as it is stored."""
    try:
        await _record(attempt, name, StepState.COMPLETED, result=result)
    except asyncpg.PostgresError as error:
        mistake = unstorable(name, error)
        await fail(attempt, name, mistake)
        raise mistake from error
    returned = attempt.step_log.results[name] = as_stored(result)
    return returned


async def fail(attempt: Attempt, name: str, error: BaseException) -> None:
    work = attempt.unit_of_work
    work.note(error)
    if work.is_undone:
        return
    match error:
        case Skip():
            await _record(attempt, name, StepState.SKIPPED, error=str(error) or None)
        case Retry() | Snooze() if name not in attempt.step_log.planned:
            pass  # it goes back with its job
        case Fail() | Retry() | Snooze():
            message = str(error) or "The step failed without saying why."
            await _record(attempt, name, StepState.FAILED, error=message)
        case _:
            await _record(attempt, name, StepState.FAILED, error=describe(error))


async def _add(attempt: Attempt, names: Sequence[str], *, started: bool) -> None:
    log, job = attempt.step_log, attempt.job
    log.check_new(names)
    if log.stored is None:
        log.stored = await attempt.services.writers.ask(lambda connection: stored_steps(connection, job.id))
    if due := log.add(names, started=started):
        attempt.check_held(await _write_plan(attempt, due, started))


async def _write_plan(attempt: Attempt, positions: dict[str, int], started: bool) -> bool:
    job = attempt.job
    while True:
        try:
            return await attempt.services.writers.ask(
                lambda connection: plan_steps(
                    connection, job.id, job.attempt_id, positions, started=started, lock_wait_ms=LONE_LOCK_WAIT_MS
                )
            )
        except asyncpg.LockNotAvailableError:
            # Not left to the writers: a thread that waits here must notice that its attempt is to stop.
            await asyncio.sleep(LOCKED_PAUSE_SECONDS)
            attempt.check()


async def _record(
    attempt: Attempt, name: str, state: StepState, *, result: str | None = None, error: str | None = None
) -> None:
    log = attempt.step_log
    record = log.record(name, state, result, error)
    log.set(name, state, record.error)
    _report(attempt, name if state is StepState.RUNNING else None)
    if state is StepState.COMPLETED and attempt.unit_of_work.in_transaction:
        log.hold_back(record)
    else:
        attempt.check_held(await attempt.services.writers.steps.record(record))


def _report(attempt: Attempt, current: str | None = None) -> None:
    attempt.put_progress(*attempt.step_log.progress(current))
