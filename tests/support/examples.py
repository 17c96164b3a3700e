"""What the tests of examples/ share."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reactor.database.connection import connect
from reactor.testing import Databases


@contextmanager
def database_of(databases: Databases) -> Iterator[str]:
    """A clone for a fixture of a module, which has no event loop."""
    with asyncio.Runner() as runner:
        clone = databases.clone()
        yield runner.run(clone.__aenter__())
        runner.run(clone.__aexit__(None, None, None))


async def execute(url: str, statement: str, *arguments: object) -> Any:
    async with connect(url, name="test") as connection:
        return await connection.fetchval(statement, *arguments)


def command(folder: Path, url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs a module as users of the example do, in its folder."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={"REACTOR_DATABASE_URL": url},
        capture_output=True,
        text=True,
    )
