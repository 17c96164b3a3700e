"""The handlers that every worker has."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from reactor.database.connection import Connection
from reactor.errors import RetentionInvalid
from reactor.handlers.context import Context
from reactor.operate.prune import JOB_TYPE, Pruned, Retention, prune
from reactor.outcome import Fail


async def prune_old(payload: Mapping[str, Any], ctx: Context) -> dict[str, int]:
    """`reactor.prune`. Not in the attempt's transaction: it works in batches, and a failure need not restore them."""
    try:
        retention = Retention.from_payload(payload)
    except RetentionInvalid as error:
        raise Fail(str(error)) from error
    total, reported = Pruned(), 0
    async with ctx.pool.acquire() as borrowed:
        connection = cast(Connection, borrowed)
        async for total in prune(connection, retention):
            if total.pipelines > reported:
                reported = total.pipelines
                await ctx.progress(None, f"{reported} pipelines removed")
    return asdict(total)


HANDLERS = {JOB_TYPE: prune_old}
