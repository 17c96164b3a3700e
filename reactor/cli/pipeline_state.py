"""The current state of one pipeline, updated from the feed."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from reactor.feed.subscriptions import Batch, Sign

Row = dict[str, Any]


class PipelineState:
    """The rows of a pipeline, its jobs and their steps, arranged as a tree."""

    def __init__(self) -> None:
        self.pipeline: Row = {}
        self.jobs: dict[int, Row] = {}
        self.sign = Sign.FRESH
        self._steps: dict[int, dict[str, Row]] = {}
        self._children: dict[int | None, list[int]] = {}

    def apply(self, batch: Batch | Sign) -> Iterator[tuple[str, Row, Row]]:
        """Yields the kind, new version and old version of each changed row; the old version of a new row is {}."""
        if isinstance(batch, Sign):
            self.sign = batch
            return
        if batch.is_snapshot:
            for rows in (self.jobs, self._steps, self._children):
                rows.clear()
        for change in batch.changes:
            row = json.loads(change.body)
            match change.kind:
                case "job":
                    before = self.jobs.get(row["id"], {})
                    yield "job", row, before
                    self._add_job(row, before)
                case "step":
                    steps = self._steps.setdefault(row["job_id"], {})
                    yield "step", row, steps.get(row["name"], {})
                    steps[row["name"]] = row
                case _:
                    self.pipeline = row

    def children(self, job_id: int | None) -> list[Row]:
        """The jobs below this one in the tree; None: those at the top."""
        return [self.jobs[child] for child in self._children.get(job_id, ())]

    def steps(self, job_id: int) -> list[Row]:
        return sorted(self._steps.get(job_id, {}).values(), key=lambda step: (step["position"], step["name"]))

    def _add_job(self, row: Row, before: Row) -> None:
        if before:
            self.jobs[row["id"]] = row | {"depends_on": before["depends_on"]}
            return
        self.jobs[row["id"]] = row
        # Below the job that chained it, or else below the last of its dependencies.
        parent = row["parent_id"] or max(row["depends_on"] or (), default=None)
        self._children.setdefault(parent if parent in self.jobs else None, []).append(row["id"])


def count_by_state(jobs: list[Row]) -> str:
    """For example `3 running, 17 pending`."""
    counts = Counter(job["state"] for job in jobs)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())
