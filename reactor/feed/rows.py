"""Reads what the database answered a poller: which rows are whose, and what they mean for a reader."""

from collections.abc import Iterator
from itertools import groupby
from uuid import UUID

import asyncpg

from reactor.feed.cursor import Cursor
from reactor.feed.subscriptions import Change, Topic

AT_MOST = 500
"""Pipelines that a reader of all of them is told of one by one; beyond that it starts over."""


def by_topic(
    rows: list[asyncpg.Record], topics: dict[UUID | None, Topic]
) -> Iterator[tuple[Topic, list[asyncpg.Record]]]:
    if None in topics:
        yield topics[None], rows
        return
    for pipeline_id, answer in groupby(rows, key=lambda row: row["pipeline_id"]):
        if pipeline_id in topics:
            yield topics[pipeline_id], list(answer)


def changes_of(topic: Topic, rows: list[asyncpg.Record], *, all_of_them: bool = False) -> list[Change]:
    """A pipeline counts as changed if one of its jobs is."""
    with_state = all_of_them or topic.pipeline_id is None or any(row["kind"] == "job" for row in rows)
    return [
        Change(row["kind"], _key(row), row["body"], row["depends_on"])
        for row in rows
        if with_state or row["kind"] != "pipeline"
    ]


def _key(row: asyncpg.Record) -> str:
    kind = row["kind"]
    return f"{kind} {row['pipeline_id']}" if kind == "pipeline" else f"{kind} {row['id']} {row['name']}"


def end_of(topic: Topic, rows: list[asyncpg.Record]) -> str | None:
    if topic.pipeline_id is None:
        return None
    return next((row["state"] for row in rows if row["kind"] == "pipeline" and row["state"] != "running"), None)


def is_too_much(topic: Topic, rows: list[asyncpg.Record]) -> bool:
    return topic.pipeline_id is None and (len(rows) > AT_MOST or any(row["kind"] == "too_many" for row in rows))


def why_not(cursor: Cursor, here: Cursor) -> str:
    if cursor.epoch != here.epoch:
        return "the cursor is of another database, or of one that was restored or failed over since"
    if cursor.snapshot[1] > here.snapshot[1]:
        return "the cursor lies in the future"
    return ""
