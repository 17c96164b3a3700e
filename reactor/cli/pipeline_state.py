"""What is known of one pipeline, kept up to date with what the feed says."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from reactor.feed.subscriptions import Batch, Sign

Row = dict[str, Any]


class Picture:
    def __init__(self) -> None:
        self.pipeline: Row = {}
        self.jobs: dict[int, Row] = {}
        self.sign = Sign.FRESH
        self._steps: dict[int, dict[str, Row]] = {}
        self._below: dict[int | None, list[int]] = {}

    def take(self, batch: Batch | Sign) -> Iterator[tuple[str, Row, Row]]:
        """Each row that changed, with what it was before: {} if it is new."""
        if isinstance(batch, Sign):
            self.sign = batch
            return
        if batch.is_snapshot:
            for known in (self.jobs, self._steps, self._below):
                known.clear()
        for change in batch.changes:
            row = json.loads(change.body)
            match change.kind:
                case "job":
                    before = self.jobs.get(row["id"], {})
                    yield "job", row, before
                    self._put_job(row, before)
                case "step":
                    steps = self._steps.setdefault(row["job_id"], {})
                    yield "step", row, steps.get(row["name"], {})
                    steps[row["name"]] = row
                case _:
                    self.pipeline = row

    def below(self, job_id: int | None) -> list[Row]:
        """Those that stand under this job, or (None) at the top."""
        return [self.jobs[child] for child in self._below.get(job_id, ())]

    def steps(self, job_id: int) -> list[Row]:
        return sorted(self._steps.get(job_id, {}).values(), key=lambda step: (step["position"], step["name"]))

    def _put_job(self, row: Row, before: Row) -> None:
        if before:
            self.jobs[row["id"]] = row | {"depends_on": before["depends_on"]}
            return
        self.jobs[row["id"]] = row
        # Under the job that chained it; else under the last that it waits for, where one reads on.
        above = row["parent_id"] or max(row["depends_on"] or (), default=None)
        self._below.setdefault(above if above in self.jobs else None, []).append(row["id"])


def by_state(jobs: list[Row]) -> str:
    """`3 running, 17 pending`"""
    counts = Counter(job["state"] for job in jobs)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())
