"""Records each change of a step: in the attempt's log, in the database, and in the job's progress."""

import asyncio
from collections.abc import Sequence

import asyncpg

from reactor.database.jsonb import storable
from reactor.error_text import describe, first_line
from reactor.handlers.attempt import Attempt
from reactor.handlers.step import Step
from reactor.handlers.step_log import as_stored, unstorable
from reactor.lifecycle.batch_writer import LOCKED_PAUSE_SECONDS, LONE_LOCK_WAIT_MS
from reactor.lifecycle.steps import Planned, StepState, Stored, plan_steps
from reactor.outcome import Fail, Retry, Skip, Snooze, in_seconds

_CHECK_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 10 * 365 * 86400.0


async def plan(attempt: Attempt, steps: Sequence[Step]) -> None:
    """All steps that are to come, so that clients see them from the start."""
    await _add(attempt, steps, started=False)


async def begin(attempt: Attempt, step: Step) -> bool:
    """A step without a plan. False: an earlier attempt completed it, and it is not to be run."""
    attempt.check()
    await _add(attempt, [step], started=True)
    return attempt.step_log.states[step.name] is not StepState.COMPLETED


async def start(attempt: Attempt, name: str) -> None:
    """A step of the plan, or one that runs again. Its start is written while it runs, if the database said a moment ago
    that the job is this attempt's: then to ask again would only take time."""
    attempt.check()
    attempt.step_log.set(name, StepState.RUNNING)
    record = attempt.step_log.record(name, StepState.RUNNING)
    steps = attempt.services.writers.steps
    if attempt.was_held_lately:
        steps.start(record, attempt.progress_of_steps)
    else:
        attempt.check_held(await steps.record(record, attempt.progress_of_steps))


async def pause(attempt: Attempt, seconds: float) -> None:
    """Before a step runs again. In short parts: a thread that waits here must notice that its attempt is to stop."""
    end = asyncio.get_running_loop().time() + seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(min(left, _CHECK_SECONDS))
        attempt.check()


async def succeed(attempt: Attempt, step: Step, result: str | None) -> None:
    """Its result is then what a later attempt would get: as it is stored."""
    try:
        await _record(attempt, step.name, StepState.COMPLETED, result=result)
    except asyncpg.PostgresError as error:
        mistake = unstorable(step.name, error)
        await _record(attempt, step.name, StepState.FAILED, error=describe(mistake))
        raise mistake from error
    attempt.step_log.results[step.name] = as_stored(result)


async def fail(attempt: Attempt, step: Step, error: BaseException) -> float | None:
    """Returns the seconds after which it runs again; None: it does not."""
    work, name = attempt.unit_of_work, step.name
    is_single = name not in attempt.step_log.planned_in_groups
    work.note(error)
    if work.is_undone:
        return None
    run = attempt.step_log.attempts(name) + 1
    match error:
        case Skip():
            await _record(attempt, name, StepState.SKIPPED, error=str(error) or None)
        case Snooze() if not is_single:
            return await _put_off(attempt, step, str(error), error.after_seconds, charged=False)
        case Retry() if run < step.tries.limit:
            return await _put_off(attempt, step, str(error), error.after_seconds)
        case Retry() if is_single and run > 1:
            await _give_back(attempt, name, str(error))
        case Retry() | Snooze() if is_single:
            pass  # it goes back with its job
        case Fail() | Retry() | Snooze():
            message = str(error) or "The step failed without saying why."
            await _record(attempt, name, StepState.FAILED, error=message)
        case _ if run < step.tries.limit:
            try:
                seconds = in_seconds(step.tries.pause_after(run, error))
            except Exception as mistake:
                both = f"{describe(error)}\n\nAnd its backoff failed: {describe(mistake)}"
                await _record(attempt, name, StepState.FAILED, error=both)
            else:
                return await _put_off(attempt, step, describe(error), seconds)
        case _:
            await _record(attempt, name, StepState.FAILED, error=describe(error))
    return None


async def _put_off(attempt: Attempt, step: Step, error: str, seconds: float, *, charged: bool = True) -> float:
    seconds = min(max(seconds, 0.0), _LONGEST_PAUSE_SECONDS) if seconds == seconds else 0.0  # not a number
    log = attempt.step_log
    log.put_off(step.name, seconds, error, charged=charged)
    record = log.record(step.name, StepState.PENDING, None, error, seconds)
    attempt.check_held(await attempt.services.writers.steps.record(record, attempt.progress_of_steps))
    attempt.log.info(
        "step will be retried",
        step=step.name,
        attempts=log.attempts(step.name),
        max_attempts=step.tries.limit,
        after_seconds=round(seconds, 3),
        error=first_line(error),
    )
    return seconds


async def _give_back(attempt: Attempt, name: str, error: str) -> None:
    """It goes back with its job, and has all of its runs again in the job's next attempt."""
    log = attempt.step_log
    log.start_over(name, error)
    record = log.record(name, StepState.PENDING, None, error)
    attempt.check_held(await attempt.services.writers.steps.record(record, attempt.progress_of_steps))


async def _add(attempt: Attempt, steps: Sequence[Step], *, started: bool) -> None:
    log, by_name = attempt.step_log, {step.name: step for step in steps}
    log.check_new([step.name for step in steps])
    is_first = not log.is_known
    if positions := log.add(list(by_name), started=started):
        planned = {name: Planned(position, by_name[name].tries.limit) for name, position in positions.items()}
        stored = await _write_plan(attempt, planned, started=started, lists_stored=is_first)
        attempt.check_held(stored is not None)
        if is_first and stored is not None:
            log.learn(stored)


async def _write_plan(
    attempt: Attempt, steps: dict[str, Planned], *, started: bool, lists_stored: bool
) -> dict[str, Stored] | None:
    job, progress = attempt.job, attempt.progress_of_steps()
    while True:
        try:
            return await attempt.services.writers.ask(
                lambda connection: plan_steps(
                    connection,
                    job.id,
                    job.attempt_id,
                    steps,
                    started=started,
                    message=progress.message if started else None,
                    counts=None if lists_stored else progress.counts,
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
    log.set(name, state, None if error is None else storable(error))
    record = log.record(name, state, result, error)
    if state is StepState.COMPLETED and attempt.unit_of_work.in_transaction:
        log.hold_back(record)
    else:
        attempt.check_held(await attempt.services.writers.steps.record(record, attempt.progress_of_steps))
