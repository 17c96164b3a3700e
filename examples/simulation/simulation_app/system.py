"""The whole application on this machine: migrations, the front end and pods, as processes."""

import hashlib
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import partial
from pathlib import Path

import httpx

FOLDER = Path(__file__).parent.parent
PERMISSIONS = {"anna": "view+submit+operate", "vera": "view"}
SETTINGS = {
    # Short, so that the jobs of a killed pod run again soon.
    "REACTOR_LEASE_SECONDS": "5",
    "REACTOR_HEARTBEAT_SECONDS": "1",
    "REACTOR_SHUTDOWN_GRACE_SECONDS": "2",
}
SETUP = (
    ["reactor", "migrate"],
    ["alembic", "upgrade", "head"],
    # J9: what is older goes every day, with its results.
    ["reactor", "prune", "--days", "30", "--every", "day"],
)
START_SECONDS = 60
STOP_SECONDS = 10
BATCH_SECONDS = 60


class SystemFailed(Exception):
    """A process did not start, or ended."""


class System:
    def __init__(self, database_url: str, folder: Path, exits: ExitStack, think_seconds: float = 0.25) -> None:
        self.address = ""
        self.pods: dict[str, subprocess.Popen[bytes]] = {}
        self.tokens = {name: secrets.token_urlsafe(32) for name in PERMISSIONS}
        hashes = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in self.tokens.items()}
        self._environment = {
            **os.environ,
            **SETTINGS,
            "REACTOR_DATABASE_URL": database_url,
            "REACTOR_TOKENS": ",".join(f"{name}:{PERMISSIONS[name]}:{hashes[name]}" for name in PERMISSIONS),
            "REACTOR_SECRET": secrets.token_hex(32),
            "SIMULATION_FOLDER": str(folder / "runtime"),
            "THINK_SECONDS": str(think_seconds),
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._exits = exits

    def client(self, name: str | None = "anna") -> httpx.Client:
        """A client of the front end, with the token of this name."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name else {}
        return self._exits.enter_context(httpx.Client(base_url=self.address, headers=headers, timeout=30))

    def migrate(self) -> None:
        for command in SETUP:
            if self._start("setup", *command).wait():
                raise SystemFailed(f"{' '.join(command)} failed:\n{self._log('setup')}")

    def start_front_end(self, port: int = 0) -> None:
        self._start(
            "front-end", "uvicorn", "--factory", "simulation_app.app:create", "--port", str(port),
            "--timeout-graceful-shutdown", "2",
        )  # fmt: skip
        self._wait("front-end", lambda: "running on http" in self._log("front-end"))
        [self.address] = re.findall(r"running on (http://\S+)", self._log("front-end"))
        self._environment["MARKET_URL"] = f"{self.address}/market/"

    def start_pods(self, *names: str) -> None:
        for name in names:
            self._environment["REACTOR_POD_ID"] = name
            self.pods[name] = self._start(name, "reactor", "worker", "--app", "simulation_app.handlers")
        client = self.client()
        for name in names:
            self._wait(name, partial(is_alive, client, name))

    def run_batch(self, first: date, last: date, *models: str) -> tuple[int, str]:
        """The exit code of batch mode, and what it printed."""
        batch = self._start("batch", "simulation_app.batch", str(first), str(last), *models)
        try:
            return batch.wait(BATCH_SECONDS), self._log("batch")
        except subprocess.TimeoutExpired:
            raise SystemFailed(f"batch mode did not end within {BATCH_SECONDS} s:\n{self._log('batch')}") from None

    def kill(self, pod: str) -> None:
        """As a power failure does: the pod has no time to release its jobs."""
        process = self.pods.pop(pod)
        process.kill()
        process.wait()

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=FOLDER, env=self._environment, stdout=log, stderr=log
            )
        self._exits.callback(stop, process)
        self._processes[name] = process
        return process

    def _wait(self, name: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline or self._processes[name].poll() is not None:
                raise SystemFailed(f"{name} did not start:\n{self._log(name)}")
            time.sleep(0.1)

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()


def is_alive(client: httpx.Client, pod: str) -> bool:
    workers = client.get("/reactor/v1/workers").raise_for_status().json()["workers"]
    return any(worker["pod"] == pod and worker["is_alive"] for worker in workers)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running(database_url: str, folder: Path, port: int = 0) -> Iterator[System]:
    """The front end, until the block is left. Pods are started by the scenario."""
    with ExitStack() as exits:
        system = System(database_url, folder, exits)
        system.migrate()
        system.start_front_end(port)
        yield system
