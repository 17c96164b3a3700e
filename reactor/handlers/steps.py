"""Runs units of work inside a job: one by one, or in groups whose members run in parallel and fail alone."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reactor.concurrency import in_thread
from reactor.error_text import first_line
from reactor.handlers.step_log import Logbook, as_result
from reactor.lifecycle.steps import StepState
from reactor.log import get_logger
from reactor.outcome import Skip

if TYPE_CHECKING:
    from reactor.handlers.context import Context

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
    """What became of a plan. Returned by a handler its counts are the job's result."""

    results: dict[str, Any]
    """What the completed steps returned, now or in an earlier attempt, by name."""
    errors: dict[str, str]
    """Why the others failed, in a line each."""
    skipped: Sequence[str]

    @property
    def counts(self) -> dict[str, int]:
        completed, failed, skipped = len(self.results), len(self.errors), len(self.skipped)
        return {"total": completed + failed + skipped, "completed": completed, "failed": failed, "skipped": skipped}


class Steps:
    """One attempt's."""

    def __init__(self, context: "Context", logbook: Logbook) -> None:
        self.logbook = logbook
        self._context = context
        self._groups_in_parallel = 0

    @property
    def in_parallel(self) -> bool:
        return self._groups_in_parallel > 0

    async def one(self, step: Step) -> Any:
        if await self.logbook.begin(step.name):
            return await self._run(step)
        return self.logbook.results[step.name]

    async def all(self, groups: Iterable[Iterable[Step]], at_once: int) -> Summary:
        if at_once < 1:
            raise ValueError(f"at_once is how many steps run in parallel, 1 or more, not {at_once!r}")
        plan = [list(group) for group in groups]
        names = [step.name for group in plan for step in group]
        await self.logbook.plan(names)
        states = self.logbook.states
        for group in plan:
            due = [step for step in group if states[step.name] is not StepState.COMPLETED]
            if at_once == 1 or len(due) <= 1:
                for step in due:
                    await self._isolated(step)
            else:
                await self._in_parallel(due, at_once)
        return self._summary(names)

    async def _in_parallel(self, steps: Sequence[Step], at_once: int) -> None:
        left = iter(steps)
        self._groups_in_parallel += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(at_once, len(steps))):
                    tasks.create_task(self._one_after_the_other(left))
        except BaseExceptionGroup as group:
            self._context.check()
            raise group.exceptions[0] from None
        finally:
            self._groups_in_parallel -= 1

    async def _one_after_the_other(self, left: Iterator[Step]) -> None:
        try:
            for step in left:
                await self._isolated(step)
        except asyncio.CancelledError as error:
            if _is_told_to_stop():
                raise
            # A task that ends as cancelled would let the others of its group run on.
            raise RuntimeError("The attempt must stop.") from error

    async def _isolated(self, step: Step) -> None:
        await self.logbook.start(step.name)
        try:
            await self._run(step)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if self._context.to_be_repeated:
                raise
            log.warning("step failed", job_id=self._context.job.id, step=step.name, error=first_line(str(error)))

    async def _run(self, step: Step) -> Any:
        try:
            async with self._context.undoing():
                result = as_result(step.name, await self._call(step))
        except asyncio.CancelledError as error:
            if self._context.cancelled or _is_told_to_stop():
                raise
            mistake = RuntimeError("The step was cancelled from within.")
            await self.logbook.fail(step.name, mistake)
            raise mistake from error
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            await self.logbook.fail(step.name, error)
            if isinstance(error, Skip):
                return None
            raise
        stored = await self.logbook.succeed(step.name, result)
        if _is_told_to_stop():
            raise asyncio.CancelledError  # a thread's end was waited for, and what it did is written down
        return stored

    async def _call(self, step: Step) -> Any:
        if inspect.iscoroutinefunction(step.function):
            return await step.function(*step.arguments)
        # A thread of its own: those of the handlers may all be taken by handlers that wait for their steps.
        executor = ThreadPoolExecutor(1, thread_name_prefix="reactor-step")
        try:
            returned = await in_thread(
                executor, lambda: step.function(*step.arguments), lambda: self._context.is_abandoned
            )
        finally:
            executor.shutdown(wait=False)
        return await returned if inspect.isawaitable(returned) else returned

    def _summary(self, names: Sequence[str]) -> Summary:
        book = self.logbook
        return Summary(
            {name: book.results[name] for name in names if book.states[name] is StepState.COMPLETED},
            {name: first_line(book.errors[name]) for name in names if book.states[name] is StepState.FAILED},
            [name for name in names if book.states[name] is StepState.SKIPPED],
        )


def _is_told_to_stop() -> bool:
    """And not cancelled by something that the step itself awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
