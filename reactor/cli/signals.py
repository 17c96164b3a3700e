"""The signals of commands that run until they are stopped."""

import asyncio
import signal
from collections.abc import Callable

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2)


def on_stop_signal(stop: Callable[[], None]) -> None:
    """Calls `stop` at each signal that asks a process to end, and ignores those that would end it for no reason."""
    loop = asyncio.get_running_loop()
    for number in _STOP:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # else it was started by nohup
            loop.add_signal_handler(number, stop)
    for number in _IGNORED:
        # Handled and not ignored: worker processes, and programs that handlers start, would inherit SIG_IGN.
        loop.add_signal_handler(number, lambda: None)
