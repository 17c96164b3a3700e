"""A command's connection to the database, and who is at the keyboard."""

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

T = TypeVar("T")


def ask(question: Callable[[Connection], Awaitable[T]]) -> T:
    """The answer to a question that needs the database."""

    async def connected() -> T:
        async with session() as connection:
            return await question(connection)

    return anyio.run(connected)


@asynccontextmanager
async def session() -> AsyncIterator[Connection]:
    """A connection to a database that has the schema. One command is one short session: it prepares nothing by name."""
    async with locate(read_settings()) as location:
        with refusals_explained():
            async with connect(location.url, name="reactor command", prepares=False) as connection:
                await check_revision(connection)
                yield connection


def operator() -> Operator:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have no name.
        user = f"uid-{os.getuid()}"
    return Operator(f"{user}@{socket.gethostname()}", "cli")
