"""The signals of commands that run until they are stopped."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2)


def run_until_stopped(command: Coroutine[Any, Any, Result]) -> Result | None:
    """Runs a command that calls `on_stop_signal` when there is something to stop. Until then a signal cancels it: the
    first process of a container ignores signals that it does not handle. Returns None if it was cancelled."""

    async def run() -> Result | None:
        task = asyncio.current_task()
        assert task is not None
        on_stop_signal(task.cancel)
        try:
            return await command
        except asyncio.CancelledError:
            if task.cancelling():
                return None
            raise

    return asyncio.run(run())


def on_stop_signal(stop: Callable[[], object]) -> None:
    """Calls `stop` at each signal that asks a process to end, and ignores those that would end it for no reason."""
    loop = asyncio.get_running_loop()
    for number in _STOP:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # else it was started by nohup
            loop.add_signal_handler(number, stop)
    for number in _IGNORED:
        # Handled and not ignored: worker processes, and programs that handlers start, would inherit SIG_IGN.
        loop.add_signal_handler(number, lambda: None)
