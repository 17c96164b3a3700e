"""An isolated runtime for each model-day: a directory, an environment and a process of its own, removed afterwards."""

import asyncio
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic import BaseModel

from simulation_app.simulation import DATA

TRADER = Path(__file__).with_name("trader.py")


class TraderFailed(Exception):
    """The trading model ended with an error."""


class Holding(BaseModel):
    """A position, or a trade."""

    symbol: str
    quantity: int
    price: Decimal


class Outcome(BaseModel):
    cash: Decimal
    value: Decimal
    positions: list[Holding]
    trades: list[Holding]


class Runtime(NamedTuple):
    folder: Path
    environment: dict[str, str]

    async def run(self, log: Callable[[str], object]) -> Outcome:
        """What the trading model decides. It is ended when this is cancelled."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(TRADER),
            cwd=self.folder, env=self.environment,
            # Open as long as this process lives: the model ends with it.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C in a terminal reaches the pod only, which gives its model-days time to end.
            start_new_session=True,
        )  # fmt: skip
        line = ""
        try:
            assert process.stdout is not None
            async for printed in process.stdout:
                line = printed.decode(errors="replace").rstrip()
                log(line)
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code:
            raise TraderFailed(line)
        return Outcome.model_validate_json((self.folder / "outcome.json").read_bytes())


@contextmanager
def isolated(workspace: Path, config: dict[str, Any]) -> Iterator[Runtime]:
    """J5: it has nothing of the environment of the pod, the address of the database for example."""
    with TemporaryDirectory(dir=workspace) as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        environment = {"HOME": folder, "TMPDIR": folder, "THINK_SECONDS": os.environ.get("THINK_SECONDS", "0")}
        yield Runtime(Path(folder), environment)


@contextmanager
def open_workspace() -> Iterator[Path]:
    """The directories of this process. Those of processes that were killed are removed: nothing locks them."""
    root = Path(os.environ.get("SIMULATION_FOLDER") or DATA.with_name("runtime"))
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as exits:
        with locked(root, fcntl.LOCK_EX):
            for left in root.iterdir():
                with suppress(OSError), locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(left)
            workspace = Path(exits.enter_context(TemporaryDirectory(dir=root, ignore_cleanup_errors=True)))
            exits.enter_context(locked(workspace, fcntl.LOCK_EX))
        yield workspace


@contextmanager
def locked(folder: Path, operation: int) -> Iterator[None]:
    """The system releases the lock of a process that ends, however it ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, operation)
        yield
    finally:
        os.close(handle)
