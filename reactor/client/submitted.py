"""What became of submitted jobs, read from the rows of reactor.submit_checked."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple
from uuid import UUID

from reactor.client.drivers import Rows
from reactor.errors import PayloadRefused
from reactor.suggestion import did_you_mean


class SubmitWarning(NamedTuple):
    """Why a job that was created would wait: no live pod runs such jobs."""

    code: Literal["no_handler", "no_pod_for_queue"]
    message: str


class _Submitted(NamedTuple):
    id: int
    pipeline_id: UUID
    outcome: Literal["created", "existing", "busy"]
    """`existing`: the id is the holder of the idempotency key; `busy`: the job that holds the exclusive scope."""


class Submitted(_Submitted):
    """The job that `submit` created, or the one that kept it from doing so."""

    warning: SubmitWarning | None = None
    """That no live pod runs such jobs. Not one of the three that unpack."""


class Kind(NamedTuple):
    job_type: str
    queue: str


def read_submitted(rows: Rows, kinds: Sequence[Kind], *, is_single: bool = False) -> list[Submitted]:
    """`kinds`: of the jobs that were sent. Raises PayloadRefused, whose fields begin with the job's position unless
    there was only one."""
    if rows and rows[0][3] == "invalid":
        raise _refused(rows, kinds, is_single)
    suggestions: dict[Kind, str] = {}
    return [_read(row, kinds[row[0] - 1], suggestions) for row in rows]


def _read(row: Sequence[Any], kind: Kind, suggestions: dict[Kind, str]) -> Submitted:
    _, job_id, pipeline_id, outcome, _, _, warning, known_types = row
    submitted = Submitted(job_id, pipeline_id, outcome)
    if warning is not None and outcome == "created":
        if known_types is not None:  # with the first job of its kind
            suggestions[kind] = did_you_mean(kind.job_type, json.loads(known_types))
        submitted.warning = _warning(warning, kind, suggestions.get(kind, ""))
    return submitted


def _warning(code: Literal["no_handler", "no_pod_for_queue"], kind: Kind, suggestion: str) -> SubmitWarning:
    what = f"has a handler for {kind.job_type}"
    if code == "no_pod_for_queue":
        what = f"that handles {kind.job_type} works on the queue {kind.queue}"
    return SubmitWarning(code, f"No live pod {what}: the job waits for one.{suggestion}")


def _refused(rows: Rows, kinds: Sequence[Kind], is_single: bool) -> PayloadRefused:
    errors = []
    for place, _, _, _, field, message, _, _ in rows:
        errors.append((field if is_single else f"jobs[{place - 1}].{field}", message))
    return PayloadRefused(kinds[rows[0][0] - 1].job_type, errors)
