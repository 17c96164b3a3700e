"""A handler that does nothing, for `reactor worker --app noop_handlers`. Records its starts in BENCH_STARTS."""

import json
import os
import time

from reactor import Context, Job, register

_starts = os.environ.get("BENCH_STARTS")
_log = open(_starts, "a", buffering=1) if _starts else None  # noqa: PTH123, SIM115 (open until the process ends)


@register("noop")
async def noop(job: Job, ctx: Context) -> None:
    if _log:
        now = time.time_ns()
        _log.write(f"{json.dumps(job.payload)}\t{now}\n")
