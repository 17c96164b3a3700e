"""A worker process: what the supervisor starts. Runs handlers, takes orders, and ends with its supervisor."""

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
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from reactor.database.connection import connect
from reactor.errors import AppInvalid, ReactorError
from reactor.handlers.registry import default, load
from reactor.lifecycle.lease import Worker, register_worker
from reactor.log import configure_logging, get_logger
from reactor.schedules.declaration import declare
from reactor.worker.claim_loop import Plan, Runner
from reactor.worker.running_attempts import RunningAttempts

log = get_logger(__name__)

ORPHANED = 70
"""The exit code of a worker whose supervisor has gone."""
_TELL_SECONDS = 1.0


@dataclass(frozen=True)
class Orders:
    """All that a worker process needs to know, sent to it as the first line: addresses hold passwords, and other users
    can read a command line."""

    app: str
    worker_id: str
    pod: str
    queues: tuple[str, ...]
    concurrency: int
    lease_seconds: float
    plan: Plan
    begun_descriptor: int
    supervisor_pid: int
    log_level: str
    log_as_json: bool

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "Orders":
        values = json.loads(line)
        return cls(**values | {"plan": Plan(**values["plan"]), "queues": tuple(values["queues"])})


class Process:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lines = control.makefile("rb")
        self._begun: RunningAttempts | None = None

    def main(self) -> int:
        orders = Orders.decode(self._lines.readline())
        _end_with(orders.supervisor_pid)
        configure_logging(orders.log_level, as_json=orders.log_as_json)
        try:
            runner = self._prepare(orders)
            _spare_the_collector()
            _run(self._work(orders, runner))
        except ReactorError as error:
            self._tell("failed", message=error.message, remedy=error.remedy, exit_code=error.exit_code)
            return error.exit_code
        except BaseException:
            log.exception("worker process broke")
            return 1
        self._tell("done", failed=runner.counts.failed, counts=runner.summary())
        if runner.is_worn:
            # A thread that does not end would keep the interpreter from ending.
            logging.shutdown()
            os._exit(0)
        return 0

    def _prepare(self, orders: Orders) -> Runner:
        try:
            registry = load(orders.app)
        except ReactorError:
            raise
        except Exception as error:
            log.exception("the app can't be imported")
            raise AppInvalid(
                orders.app, f"importing it raised {type(error).__name__}: {error}", "The traceback is in the log."
            ) from error
        worker = Worker(orders.pod, registry.job_types, orders.queues, orders.concurrency, UUID(orders.worker_id))
        return Runner(orders.plan, registry, worker, RunningAttempts(orders.concurrency, orders.begun_descriptor))

    async def _work(self, orders: Orders, runner: Runner) -> None:
        loop = asyncio.get_running_loop()
        if not orders.plan.inherits:
            async with connect(orders.plan.url, name=f"reactor register {orders.pod}", prepares=False) as connection:
                await register_worker(connection, runner.worker, orders.lease_seconds)
                await declare(connection, default.schedules)
        self._tell("ready", job_types=dict(runner.worker.job_types))
        runner.on_worn = lambda: self._wear_out(runner)
        commands: dict[bytes, Callable[[], None]] = {b"stop": runner.stop, b"interrupt": runner.interrupt}
        threading.Thread(target=self._obey, args=(loop, commands), daemon=True, name="reactor orders").start()
        telling = asyncio.create_task(self._keep_telling(runner))
        try:
            await runner.run()
        finally:
            telling.cancel()

    async def _keep_telling(self, runner: Runner) -> None:
        """What it has done, for the heartbeat to store. A supervisor that does not read must not hold us up."""
        told = None
        room = select.poll()
        room.register(self._control, select.POLLOUT)
        while True:
            if (summary := runner.summary()) != told and room.poll(0):
                self._tell("counts", counts=summary)
                told = summary
            await asyncio.sleep(_TELL_SECONDS)

    def _wear_out(self, runner: Runner) -> None:
        self._tell("worn")
        runner.stop()

    def _obey(self, loop: asyncio.AbstractEventLoop, commands: dict[bytes, Callable[[], None]]) -> None:
        """In a thread, so that a blocked event loop does not outlive the supervisor."""
        for line in self._lines:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(commands[line.strip()])
        os._exit(ORPHANED)

    def _tell(self, event: str, **facts: Any) -> None:
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


def _spare_the_collector() -> None:
    """Thousands of jobs a second are many short-lived objects, none of them in a cycle: looking for cycles after every
    700 of them, and through all modules now and then, took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _end_with(supervisor_pid: int) -> None:
    """The end of the control socket says it too, but to a thread, which waits while C code holds the interpreter."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(ORPHANED)


def main() -> None:
    # Signals are the supervisor's. Handled and not ignored: what handlers start would inherit that they are ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    sys.exit(Process(socket.socket(fileno=descriptor)).main())


if __name__ == "__main__":
    main()
