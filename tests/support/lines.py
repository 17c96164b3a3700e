"""Inserts lines of logs directly, without a handler."""

from collections.abc import Sequence
from typing import Any

from reactor.database.connection import Connection

ATTEMPT = "00000000-0000-4000-8000-{:012}"


async def insert_lines(connection: Connection, job_id: int, lines: Sequence[dict[str, Any]]) -> None:
    """Each with the columns that differ from those of a line of the first attempt."""
    for number, line in enumerate(lines, 1):
        values = {"attempt": 1, "number": number, "level": "info", "step": None, "message": "x", "fields": None} | line
        await connection.execute(
            "insert into reactor.logs (job_id, at, attempt_id, attempt, number, level, step, message, fields) "
            "values ($1, '2026-01-02 03:04:05.678Z', $2, $3, $4, $5, $6, $7, $8)",
            job_id,
            ATTEMPT.format(values["attempt"]),
            *values.values(),
        )
