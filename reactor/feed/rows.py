"""Reads what the database answered a poller: which rows are whose, and what they mean for a reader."""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

import asyncpg

from reactor.feed.cursor import Cursor
from reactor.feed.subscriptions import Change, Topic

AT_MOST = 500
"""Pipelines that a reader of all of them is given one by one; beyond that it starts over."""


class Answer(NamedTuple):
    """What the rows say about one topic."""

    changes: list[Change]
    state: str | None
    """The final state of the pipeline, if it has ended."""
    is_known: bool
    """The pipeline exists; always true of the overview."""
    is_too_much: bool
    """More than a reader of all pipelines can be given one by one."""


def by_topic(rows: list[asyncpg.Record], topics: dict[UUID | None, Topic]) -> Iterator[tuple[Topic, Answer]]:
    if None in topics:
        yield topics[None], read_answer(None, rows)
        return
    for pipeline_id, about_it in groupby(rows, key=lambda row: row["pipeline_id"]):
        if pipeline_id in topics:
            yield topics[pipeline_id], read_answer(pipeline_id, list(about_it))


def read_answer(pipeline_id: UUID | None, rows: list[asyncpg.Record], *, all_of_them: bool = False) -> Answer:
    """`all_of_them`: the rows are a snapshot. Otherwise a pipeline counts as changed if one of its jobs is."""
    with_state = all_of_them or pipeline_id is None or any(row["kind"] == "job" for row in rows)
    changes = [
        Change(row["kind"], _key(row), row["body"], row["depends_on"])
        for row in rows
        if with_state or row["kind"] != "pipeline"
    ]
    if pipeline_id is None:
        is_too_much = len(rows) > AT_MOST or any(row["kind"] == "too_many" for row in rows)
        return Answer(changes, None, is_known=True, is_too_much=is_too_much)
    states = [row["state"] for row in rows if row["kind"] == "pipeline"]
    final = next((state for state in states if state != "running"), None)
    return Answer(changes, final, is_known=bool(states), is_too_much=False)


def _key(row: asyncpg.Record) -> str:
    kind = row["kind"]
    return f"{kind} {row['pipeline_id']}" if kind == "pipeline" else f"{kind} {row['id']} {row['name']}"


def why_not(cursor: Cursor, here: Cursor) -> str:
    if cursor.epoch != here.epoch:
        return "the cursor is of another database, or of one that was restored or failed over since"
    if cursor.snapshot[1] > here.snapshot[1]:
        return "the cursor lies in the future"
    return ""
