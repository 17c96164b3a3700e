"""Runs units of work inside a job: one by one, or in groups whose members run in parallel and fail alone."""

import asyncio
import inspect
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from reactor.concurrency import in_thread
from reactor.error_text import first_line
from reactor.handlers import record_step
from reactor.handlers.attempt import Attempt
from reactor.handlers.due_steps import DueSteps
from reactor.handlers.step import Step, Tries, running_step, timed_out
from reactor.handlers.step_log import StepLog, as_result
from reactor.lifecycle.steps import StepState
from reactor.log import get_logger
from reactor.outcome import Skip

log = get_logger(__name__)

AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a plan. A handler that returns it makes its counts the job's result."""

    results: dict[str, Any]
    """What the completed steps returned, in this attempt or an earlier one, by name."""
    errors: dict[str, str]
    """Why the others failed, one line each."""
    skipped: Sequence[str]

    @property
    def counts(self) -> dict[str, int]:
        completed, failed, skipped = len(self.results), len(self.errors), len(self.skipped)
        return {"total": completed + failed + skipped, "completed": completed, "failed": failed, "skipped": skipped}


async def run_step(attempt: Attempt, step: Step) -> Any:
    """One step without a plan."""
    if await record_step.begin(attempt, step):
        log = attempt.step_log
        pause: float | None = log.take_pause(step.name)
        while pause is not None:
            if log.states[step.name] is StepState.PENDING:
                await record_step.pause(attempt, pause)
                await record_step.start(attempt, step.name)
            pause = await _run(attempt, step)
    return attempt.step_log.results.get(step.name)


async def run_steps(attempt: Attempt, groups: Iterable[Iterable[Step]], at_once: int, tries: Tries) -> Summary:
    """A plan: groups one after the other, the steps of a group in parallel. `tries`: for steps without their own."""
    if at_once < 1:
        raise ValueError(f"at_once is how many steps run in parallel, 1 or more, not {at_once!r}")
    plan = [[step.or_else(tries) for step in group] for group in groups]
    steps = [step for group in plan for step in group]
    await record_step.plan(attempt, steps)
    states = attempt.step_log.states
    for group in plan:
        due = DueSteps(attempt, [step for step in group if states[step.name] is not StepState.COMPLETED])
        if at_once == 1 or len(due) <= 1:
            with due.timers():
                await _run_in_turn(attempt, due)
        else:
            with due.timers(), attempt.unit_of_work.parallel_steps():
                await _run_in_parallel(attempt, due, at_once)
    return _summary(attempt.step_log, [step.name for step in steps])


async def _run_in_parallel(attempt: Attempt, due: DueSteps, at_once: int) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(at_once, len(due))):
                tasks.create_task(_run_as_one_of_many(attempt, due))
    except BaseExceptionGroup as group:
        attempt.check()
        raise group.exceptions[0] from None


async def _run_as_one_of_many(attempt: Attempt, due: DueSteps) -> None:
    try:
        await _run_in_turn(attempt, due)
    except asyncio.CancelledError as error:
        if _is_being_cancelled():
            raise
        # A task that ends as cancelled would let the others of its group run on.
        raise RuntimeError("The attempt must stop.") from error


async def _run_in_turn(attempt: Attempt, due: DueSteps) -> None:
    while (step := await due.take()) is not None:
        pause = await _run_isolated(attempt, step)
        if pause is not None:
            due.put_back(step, pause)


async def _run_isolated(attempt: Attempt, step: Step) -> float | None:
    """Its failure does not stop the others. Returns the seconds after which it runs again; None: it does not."""
    await record_step.start(attempt, step.name)
    try:
        return await _run(attempt, step)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if attempt.unit_of_work.is_undone:
            raise
        log.warning("step failed", job_id=attempt.job.id, step=step.name, error=first_line(str(error)))
        return None


async def _run(attempt: Attempt, step: Step) -> float | None:
    """Raises what the step raises, unless it runs again after the seconds that are returned."""
    try:
        async with attempt.unit_of_work.step(attempt.check):
            result = as_result(step.name, await _call_in_time(attempt, step))
    except asyncio.CancelledError as error:
        if attempt.is_stopping or _is_being_cancelled():
            raise
        mistake = RuntimeError("The step was cancelled from within.")
        if (pause := await record_step.fail(attempt, step, mistake)) is not None:
            return pause
        raise mistake from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        pause = await record_step.fail(attempt, step, error)
        if pause is not None or isinstance(error, Skip):
            return pause
        raise
    await record_step.succeed(attempt, step, result)
    if _is_being_cancelled():
        raise asyncio.CancelledError  # the end of a thread was waited for, and its result is recorded
    return None


async def _call_in_time(attempt: Attempt, step: Step) -> Any:
    """What returns before it was stopped is in time."""
    with running_step(step):
        limit = asyncio.timeout(step.tries.timeout_seconds)
        try:
            async with limit:
                return await _call(attempt, step)
        except TimeoutError:
            if limit.expired():
                raise timed_out(step) from None
            raise


async def _call(attempt: Attempt, step: Step) -> Any:
    if inspect.iscoroutinefunction(step.function):
        return await step.function(*step.arguments)
    # A thread of its own: those of the handlers may all be taken by handlers that wait for their steps.
    executor = ThreadPoolExecutor(1, thread_name_prefix="reactor-step")
    try:
        returned = await in_thread(executor, lambda: step.function(*step.arguments), lambda: attempt.is_abandoned)
    finally:
        executor.shutdown(wait=False)
    return await returned if inspect.isawaitable(returned) else returned


def _summary(log: StepLog, names: Sequence[str]) -> Summary:
    return Summary(
        {name: log.results[name] for name in names if log.states[name] is StepState.COMPLETED},
        {name: first_line(log.errors[name]) for name in names if log.states[name] is StepState.FAILED},
        [name for name in names if log.states[name] is StepState.SKIPPED],
    )


def _is_being_cancelled() -> bool:
    """The task itself, and not something that the step awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
