"""Options and argument types shared by several commands."""

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

JOB_ID = click.IntRange(1, 2**63 - 1)

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def address_options(command: Command) -> Command:
    command = click.option("--port", type=int, help="Port; 0 = any free port.  [REACTOR_PORT, default: 8080]")(command)
    return click.option("--host", help="Address to bind to.  [REACTOR_HOST, default: 127.0.0.1]")(command)
