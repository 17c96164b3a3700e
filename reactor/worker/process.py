"""The worker process that the supervisor starts: runs handlers, obeys commands, and ends with its supervisor."""

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from reactor.database.connection import connect
from reactor.errors import AppInvalid, ReactorError
from reactor.handlers.job_types import publish_job_types
from reactor.handlers.limits import declare_limits
from reactor.handlers.registry import default, load
from reactor.lifecycle.lease import Worker, register_worker, split_slots
from reactor.log import configure_logging, get_logger
from reactor.schedules.declaration import declare
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.options import Orders
from reactor.worker.running_attempts import RunningAttempts

log = get_logger(__name__)

ORPHANED = 70
"""The exit code of a worker whose supervisor has gone."""
_REPORT_SECONDS = 1.0
_SUPERVISORS_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
)


def main() -> None:
    # Signals are for the supervisor. Handled and not ignored: programs that handlers start would inherit SIG_IGN.
    for number in _SUPERVISORS_SIGNALS:
        signal.signal(number, lambda *_: None)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    sys.exit(Process(socket.socket(fileno=descriptor)).main())


class Process:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lines = control.makefile("rb")

    def main(self) -> int:
        orders = Orders.decode(self._lines.readline())
        _end_with(orders.supervisor_pid)
        configure_logging(orders.log_level, as_json=orders.log_as_json)
        running_attempts = RunningAttempts(orders.concurrency, descriptor=orders.attempts_descriptor)
        try:
            claim_loop = self._prepare(orders, running_attempts)
            _relax_the_collector()
            _run(self._work(orders, claim_loop, running_attempts))
        except ReactorError as error:
            self._send("failed", message=error.message, remedy=error.remedy, exit_code=error.exit_code)
            return error.exit_code
        except BaseException:
            log.exception("internal error in worker process")
            return 1
        self._send("done", failed=claim_loop.counts.failed, counts=claim_loop.summary())
        if claim_loop.is_stuck:
            # A thread that does not end would keep the interpreter from exiting.
            logging.shutdown()
            os._exit(0)
        return 0

    def _prepare(self, orders: Orders, running_attempts: RunningAttempts) -> ClaimLoop:
        try:
            registry = load(orders.app)
        except ReactorError:
            raise
        except Exception as error:
            log.exception("import of the app failed")
            raise AppInvalid(
                orders.app, f"importing it raised {type(error).__name__}: {error}", "The traceback is in the log."
            ) from error
        queues, slots = split_slots(orders.queues)
        worker = Worker(orders.pod, registry.job_types, queues, orders.concurrency, UUID(orders.worker_id), slots)
        return ClaimLoop(orders.options, registry, worker, running_attempts)

    async def _work(self, orders: Orders, claim_loop: ClaimLoop, running_attempts: RunningAttempts) -> None:
        loop = asyncio.get_running_loop()
        if not orders.options.inherits:
            name = f"reactor register {orders.pod}"
            async with connect(orders.options.url, name=name, prepares=False) as connection:
                await register_worker(connection, claim_loop.worker, orders.lease_seconds)
                await declare(connection, default.schedules)
                await declare_limits(connection, default.limits)
                await publish_job_types(connection, claim_loop.worker.id, default)
        self._send("ready", job_types=dict(claim_loop.worker.job_types))
        claim_loop.on_stuck = lambda: self._on_stuck(claim_loop)
        commands: dict[bytes, Callable[[], None]] = {b"stop": claim_loop.stop, b"interrupt": claim_loop.interrupt}
        threading.Thread(target=self._obey, args=(loop, commands), daemon=True, name="reactor commands").start()
        reporting = asyncio.create_task(self._report(claim_loop, running_attempts))
        try:
            await claim_loop.run()
        finally:
            reporting.cancel()

    async def _report(self, claim_loop: ClaimLoop, running_attempts: RunningAttempts) -> None:
        """Counts, for the heartbeat to store, and that the event loop runs. A supervisor that does not read must not
        block this process."""
        reported = None
        writable = select.poll()
        writable.register(self._control, select.POLLOUT)
        while True:
            if (summary := claim_loop.summary()) != reported and writable.poll(0):
                self._send("counts", counts=summary)
                reported = summary
            running_attempts.note_alive(time.monotonic())
            await asyncio.sleep(_REPORT_SECONDS)

    def _on_stuck(self, claim_loop: ClaimLoop) -> None:
        """The supervisor starts another process; this one ends when its other jobs have."""
        self._send("stuck")
        claim_loop.stop()

    def _obey(self, loop: asyncio.AbstractEventLoop, commands: dict[bytes, Callable[[], None]]) -> None:
        """In a thread, so that a process with a blocked event loop does not outlive the supervisor."""
        for line in self._lines:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(commands[line.strip()])
        os._exit(ORPHANED)

    def _send(self, event: str, **facts: Any) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps({"event": event} | facts).encode() + b"\n")


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)


def _relax_the_collector() -> None:
    """Thousands of jobs a second make many short-lived objects, none of them in a cycle. Looking for cycles after every
    700 of them, and through all modules now and then, took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _end_with(supervisor_pid: int) -> None:
    """The end of the control socket ends it too, but through a thread, which waits while C code holds the GIL."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(ORPHANED)


if __name__ == "__main__":
    main()
