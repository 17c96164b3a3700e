"""Runs units of work inside a job: one by one, or in groups whose members run in parallel and fail alone."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from reactor.concurrency import in_thread
from reactor.error_text import first_line
from reactor.handlers import record_step
from reactor.handlers.attempt import Attempt
from reactor.handlers.step_log import StepLog, as_result
from reactor.handlers.stored_log import STEP
from reactor.lifecycle.steps import StepState
from reactor.log import get_logger
from reactor.outcome import Skip

log = get_logger(__name__)

AT_ONCE = 4


class Step:
    """One unit of a plan: `Step("2026-01-02/snow", run_model, day, model)`. A plain function is run in a thread."""

    __slots__ = ("arguments", "function", "name")

    def __init__(self, name: str, function: Callable[..., Any], *arguments: Any) -> None:
        self.name = name
        self.function = function
        self.arguments = arguments


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
    if await record_step.begin(attempt, step.name):
        return await _run(attempt, step)
    return attempt.step_log.results[step.name]


async def run_steps(attempt: Attempt, groups: Iterable[Iterable[Step]], at_once: int) -> Summary:
    """A plan: groups one after the other, the steps of a group in parallel."""
    if at_once < 1:
        raise ValueError(f"at_once is how many steps run in parallel, 1 or more, not {at_once!r}")
    plan = [list(group) for group in groups]
    names = [step.name for group in plan for step in group]
    await record_step.plan(attempt, names)
    states = attempt.step_log.states
    for group in plan:
        due = [step for step in group if states[step.name] is not StepState.COMPLETED]
        if at_once == 1 or len(due) <= 1:
            for step in due:
                await _run_isolated(attempt, step)
        else:
            await _run_in_parallel(attempt, due, at_once)
    return _summary(attempt.step_log, names)


async def _run_in_parallel(attempt: Attempt, steps: Sequence[Step], at_once: int) -> None:
    left = iter(steps)
    with attempt.unit_of_work.parallel_steps():
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(at_once, len(steps))):
                    tasks.create_task(_run_one_after_the_other(attempt, left))
        except BaseExceptionGroup as group:
            attempt.check()
            raise group.exceptions[0] from None


async def _run_one_after_the_other(attempt: Attempt, left: Iterator[Step]) -> None:
    try:
        for step in left:
            await _run_isolated(attempt, step)
    except asyncio.CancelledError as error:
        if _is_being_cancelled():
            raise
        # A task that ends as cancelled would let the others of its group run on.
        raise RuntimeError("The attempt must stop.") from error


async def _run_isolated(attempt: Attempt, step: Step) -> None:
    """Its failure does not stop the others."""
    await record_step.start(attempt, step.name)
    try:
        await _run(attempt, step)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if attempt.unit_of_work.is_undone:
            raise
        log.warning("step failed", job_id=attempt.job.id, step=step.name, error=first_line(str(error)))


async def _run(attempt: Attempt, step: Step) -> Any:
    try:
        async with attempt.unit_of_work.step(attempt.check):
            result = as_result(step.name, await _call(attempt, step))
    except asyncio.CancelledError as error:
        if attempt.is_stopping or _is_being_cancelled():
            raise
        mistake = RuntimeError("The step was cancelled from within.")
        await record_step.fail(attempt, step.name, mistake)
        raise mistake from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        await record_step.fail(attempt, step.name, error)
        if isinstance(error, Skip):
            return None
        raise
    stored = await record_step.succeed(attempt, step.name, result)
    if _is_being_cancelled():
        raise asyncio.CancelledError  # the end of a thread was waited for, and its result is recorded
    return stored


async def _call(attempt: Attempt, step: Step) -> Any:
    token = STEP.set(step.name)
    try:
        return await _call_function(attempt, step)
    finally:
        STEP.reset(token)


async def _call_function(attempt: Attempt, step: Step) -> Any:
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
