"""Records each change of a step: in the attempt's log, in the database, and in the job's progress."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from reactor.error_text import describe
from reactor.handlers.attempt import Attempt
from reactor.handlers.step_log import as_stored, unstorable
from reactor.lifecycle.batch_writer import LOCKED_PAUSE_SECONDS, LONE_LOCK_WAIT_MS
from reactor.lifecycle.steps import StepState, Stored, plan_steps
from reactor.outcome import Fail, Retry, Skip, Snooze


async def plan(attempt: Attempt, names: Sequence[str]) -> None:
    """All steps that are to come, so that clients see them from the start."""
    await _add(attempt, names, started=False)


async def begin(attempt: Attempt, name: str) -> bool:
    """A step without a plan. False: an earlier attempt completed it, and it is not to be run."""
    attempt.check()
    await _add(attempt, [name], started=True)
    return attempt.step_log.states[name] is not StepState.COMPLETED


async def start(attempt: Attempt, name: str) -> None:
    """A step of the plan. Its start is written while it runs, if the database said a moment ago that the job is this
    attempt's: then to ask again would only take time."""
    attempt.check()
    attempt.step_log.set(name, StepState.RUNNING)
    record = attempt.step_log.record(name, StepState.RUNNING)
    steps = attempt.services.writers.steps
    if attempt.was_held_lately:
        steps.start(record, attempt.progress_of_steps)
    else:
        attempt.check_held(await steps.record(record, attempt.progress_of_steps))


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
    log = attempt.step_log
    log.check_new(names)
    is_first = log.stored is None
    if positions := log.add(names, started=started):
        stored = await _write_plan(attempt, positions, started=started, lists_stored=is_first)
        attempt.check_held(stored is not None)
        if is_first and stored is not None:
            log.learn(stored)


async def _write_plan(
    attempt: Attempt, positions: dict[str, int], *, started: bool, lists_stored: bool
) -> dict[str, Stored] | None:
    job, message = attempt.job, attempt.progress_of_steps().message if started else None
    while True:
        try:
            return await attempt.services.writers.ask(
                lambda connection: plan_steps(
                    connection,
                    job.id,
                    job.attempt_id,
                    positions,
                    started=started,
                    message=message,
                    lists_stored=lists_stored,
                    lock_wait_ms=LONE_LOCK_WAIT_MS,
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
    if state is StepState.COMPLETED and attempt.unit_of_work.in_transaction:
        log.hold_back(record)
    else:
        attempt.check_held(await attempt.services.writers.steps.record(record, attempt.progress_of_steps))
