"""Options and argument types shared by several commands."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from reactor.database.jsonb import encode

Command = TypeVar("Command", bound=Callable[..., object])

JOB_ID = click.IntRange(1, 2**63 - 1)


def read_facts(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any] | None:
    """What --meta NAME=VALUE says, each VALUE as JSON if it is, or as a text."""
    facts: dict[str, Any] = {}
    for fact in given:
        name, equals, value = fact.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{fact!r} is not NAME=VALUE, such as region=eu.")
        facts[name] = _as_json(value)
    try:
        encode(facts)
    except ValueError as error:
        raise click.BadParameter(f"can't be stored: {error}.") from None
    return facts or None


def _as_json(value: str) -> Any:
    try:
        read = json.loads(value)
        encode(read)
    except (ValueError, RecursionError):
        return value  # also NaN, which Python reads
    return read


def meta_option(text: str) -> Callable[[Command], Command]:
    return click.option("--meta", metavar="NAME=VALUE", multiple=True, callback=read_facts, help=text)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def address_options(command: Command) -> Command:
    command = click.option("--port", type=int, help="Port; 0 = any free port.  [REACTOR_PORT, default: 8080]")(command)
    return click.option("--host", help="Address to bind to.  [REACTOR_HOST, default: 127.0.0.1]")(command)
