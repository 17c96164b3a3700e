"""The steps of a group that are still to run: those whose pause is over first, the others in their order."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from reactor.handlers.attempt import Attempt
from reactor.handlers.step import Step

_CHECK_SECONDS = 1.0


class DueSteps:
    """Shared by the tasks that run the group."""

    def __init__(self, attempt: Attempt, steps: Sequence[Step]) -> None:
        self._attempt = attempt
        self._due: deque[Step] = deque()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """Of the steps that wait for their next run."""
        self._has_changed = asyncio.Event()
        for step in steps:
            pause = attempt.step_log.take_pause(step.name)
            if pause > 0:
                self.put_back(step, pause)
            else:
                self._due.append(step)

    def __len__(self) -> int:
        return len(self._due) + len(self._timers)

    @contextmanager
    def timers(self) -> Iterator[None]:
        """Ends them together with the block."""
        try:
            yield
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def take(self) -> Step | None:
        """None: no step is left. One that another task runs may come back; that task takes it then."""
        while not self._due:
            if not self._timers:
                return None
            await self._wait()
        return self._due.popleft()

    def put_back(self, step: Step, pause_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[step.name] = loop.call_later(pause_seconds, self._on_due, step)

    def _on_due(self, step: Step) -> None:
        del self._timers[step.name]
        self._due.appendleft(step)
        self._has_changed.set()

    async def _wait(self) -> None:
        """In short parts: a thread that waits here must notice that its attempt is to stop."""
        self._has_changed.clear()
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._has_changed.wait()
        except TimeoutError:
            self._attempt.check()
