"""A handler that does nothing, for `reactor worker --app noop_handlers`; notes its starts if drain.py asks for them."""

import json
import os
import time

from reactor import Context, Job, register

_starts = os.environ.get("BENCH_STARTS")
_noted = open(_starts, "a", buffering=1) if _starts else None  # noqa: PTH123, SIM115 (open as long as the process)


@register("noop")
async def noop(job: Job, ctx: Context) -> None:
    if _noted:
        now = time.time_ns()
        _noted.write(f"{json.dumps(job.payload)}\t{now}\n")
