"""A command's database connection, and the operator's identity for the audit."""

import getpass
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from reactor.database.connection import Connection, connect
from reactor.database.refusals import refusals_explained
from reactor.database.revision import check_revision
from reactor.embedded.locate import locate
from reactor.operate import Operator
from reactor.settings import read_settings

Result = TypeVar("Result")


def run_connected(function: Callable[[Connection], Awaitable[Result]]) -> Result:
    """Calls `function` with a connection and returns its result."""

    async def connected() -> Result:
        async with session() as connection:
            return await function(connection)

    return anyio.run(connected)


@asynccontextmanager
async def session() -> AsyncIterator[Connection]:
    """A connection to a migrated database. Prepares no statements, since a command runs each of them only once."""
    async with locate(read_settings()) as location:
        with refusals_explained():
            async with connect(location.url, name="reactor command", prepares=False) as connection:
                await check_revision(connection)
                yield connection


def current_operator() -> Operator:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # The user of a container may have no name.
        user = f"uid-{os.getuid()}"
    return Operator(f"{user}@{socket.gethostname()}", "cli")
