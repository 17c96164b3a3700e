"""A `reactor worker` as an operator starts it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.logs import entries


class Pod:
    """A supervisor and the worker processes that it starts."""

    def __init__(
        self,
        url: str,
        folder: Path,
        number: int,
        arguments: Sequence[str],
        settings: dict[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix`: a command that executes the pod in its place, e.g. in a network namespace."""
        self.name = f"pod-{number}"
        self.marks_file = folder / "marks"
        self._log_file = folder / f"log-{number}"
        outside = {name: value for name, value in os.environ.items() if not name.startswith("REACTOR_")}
        inside = {"REACTOR_DATABASE_URL": url, "REACTOR_POD_ID": self.name, "POD_MARKS": str(self.marks_file)}
        with self._log_file.open("w") as log:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "reactor", "worker", "--app", "pod_handlers", *arguments],
                cwd=Path(__file__).parent,
                env=outside | inside | settings,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    @property
    def workers(self) -> list[int]:
        """The pids of its worker processes."""
        return self._find_children("-f", "reactor.worker.process")

    @property
    def children(self) -> list[int]:
        """The pids of all its processes but the supervisor's."""
        return self._find_children()

    def _find_children(self, *criteria: str) -> list[int]:
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), *criteria], capture_output=True, text=True, check=False
        ).stdout.split()
        return [int(pid) for pid in found]

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in entries(self._log_file) if entry["event"] == event]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self, pid: int | None = None) -> None:
        """Without a pid: the whole pod at once, as in a power failure."""
        for victim in [pid] if pid else [self.process.pid, *self.workers]:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)

    def signal_all(self, number: int) -> None:
        for pid in (self.process.pid, *self.workers):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def exit_code(self, within_seconds: float = 30) -> int:
        return await asyncio.to_thread(self.process.wait, within_seconds)

    def end(self) -> None:
        self.kill()
        self.process.wait()


StartPod = Callable[..., Awaitable[Pod]]
"""The fixture `start_pod`."""
Marks = Callable[[str], list[tuple[int, int, int, float]]]
"""The fixture `marks`: the job, attempt, pid and time of each mark with this word."""


def is_alive(pid: int) -> bool:
    """A zombie runs nothing: it waits for its parent to read its exit code."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
