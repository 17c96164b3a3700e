"""Runs the scenarios of a client, and prints what each of them returned."""

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any


class Skipped(Exception):
    """What the library can't do, and why."""


def main(client: Any, package: str, describe: Callable[[BaseException], dict[str, Any]]) -> None:
    """Calls the method of each scenario, with its input. `describe`: the facts of an error of this library."""
    if inspect.iscoroutinefunction(client.insert):
        asyncio.run(_run_async(client, package, describe))
        return
    _print({"version": version(package)})
    with client:
        for name, given in _scenarios():
            try:
                _print({"scenario": name, "returned": getattr(client, name)(given)})
            except Exception as error:
                _print({"scenario": name} | _outcome(error, describe))


async def _run_async(client: Any, package: str, describe: Callable[[BaseException], dict[str, Any]]) -> None:
    _print({"version": version(package)})
    async with client:
        for name, given in _scenarios():
            try:
                _print({"scenario": name, "returned": await getattr(client, name)(given)})
            except Exception as error:
                _print({"scenario": name} | _outcome(error, describe))


def _scenarios() -> list[tuple[str, dict[str, Any]]]:
    return list(json.loads(Path(sys.argv[1]).read_text()).items())


def _outcome(error: Exception, describe: Callable[[BaseException], dict[str, Any]]) -> dict[str, Any]:
    if isinstance(error, Skipped):
        return {"skipped": str(error)}
    return {"error": {"sqlstate": None, "constraint": None, "message": f"{error!r}"} | describe(error)}


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line, default=str), flush=True)
