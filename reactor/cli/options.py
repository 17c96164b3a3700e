"""Flags that several commands share."""

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])


def address_options(command: Command) -> Command:
    command = click.option("--port", type=int, help="Port; 0 = any free one.  [REACTOR_PORT, default 8080]")(command)
    return click.option("--host", help="Address to bind to.  [REACTOR_HOST, default 127.0.0.1]")(command)
