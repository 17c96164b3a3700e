"""A `reactor serve` as an operator starts it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests.support.logs import entries


class Server:
    def __init__(self, url: str, folder: Path, number: int, arguments: Sequence[str], settings: dict[str, str]) -> None:
        self._log_file = folder / f"server-{number}.log"
        self.address = ""
        outside = {name: value for name, value in os.environ.items() if not name.startswith("REACTOR_")}
        with self._log_file.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reactor", "serve", *arguments],
                env=outside | {"REACTOR_DATABASE_URL": url} | settings,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def find_address(self) -> str:
        assert self.process.poll() is None, self.log
        served = (entry["address"] for entry in entries(self._log_file) if entry["event"] == "serving")
        self.address = next(served, "")
        return self.address

    async def stop(self, number: int = signal.SIGTERM, within_seconds: float = 30) -> int:
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, within_seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


StartServer = Callable[..., Awaitable[Server]]
"""The fixture `start_server`."""
