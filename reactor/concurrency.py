"""Waits for whichever comes first."""

import asyncio
from collections.abc import Awaitable
from typing import Any


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Returns when one of them has ended; coroutines that have not are cancelled, tasks go on."""
    given = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(given, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future, awaitable in zip(given, awaitables, strict=True):
            if future is not awaitable:
                future.cancel()
