"""Publishes which job types a worker has handlers for, with the JSON Schemas of their payloads."""

import asyncio
import inspect
from typing import Any
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode, storable
from reactor.handlers.registry import Handler, Registry
from reactor.log import get_logger

log = get_logger(__name__)

MAX_SCHEMA_BYTES = 100_000
_TRIES = 10
_PAUSE_SECONDS = 0.2


async def publish_job_types(connection: Connection, worker_id: UUID, registry: Registry) -> None:
    """Writes what has changed since it was last published. Waits for no other transaction for long."""
    rows = encode([_as_row(handler) for handler in registry.handlers])
    left: list[str] = []
    for _ in range(_TRIES):
        left = [record["name"] for record in await connection.fetch(statements.PUBLISH_JOB_TYPES, worker_id, rows)]
        if not left:
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    log.warning(
        "job types not published",
        job_types=left,
        why="another transaction has locked their rows in reactor.job_types; the next worker that starts tries again",
    )


def _as_row(handler: Handler) -> dict[str, Any]:
    documentation = inspect.getdoc(handler.function) or ""
    return {
        "name": handler.job_type,
        "max_attempts": handler.max_attempts and min(handler.max_attempts, 2**31 - 1),
        "timeout_seconds": handler.timeout_seconds,
        "delivery": handler.delivery,
        "description": storable(documentation.partition("\n")[0][:200]) or None,
        "payload_schema": _schema(handler),
        "is_checked": handler.check_payload,
    }


def _schema(handler: Handler) -> dict[str, Any] | None:
    """None: it has no model, or one without a schema, such as one with a field of any Python class."""
    if handler.model is None:
        return None
    try:
        schema = handler.model.model_json_schema()
        size = len(encode(schema))
    except Exception as error:
        log.warning("payload has no schema", job_type=handler.job_type, why=f"{type(error).__name__}: {error}")
        return None
    if size > MAX_SCHEMA_BYTES:
        log.warning("payload's schema is too large", job_type=handler.job_type, bytes=size, limit=MAX_SCHEMA_BYTES)
        return None
    return schema
