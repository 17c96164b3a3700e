"""Operators' actions: cancel, retry, recover, pause, limit, drain, prune, schedules. Each one is audited.

Imports `database` and `schedules`. Imported by `handlers`, the HTTP API, the command line and users' scripts.
"""

from reactor.operate.actions import (
    Changed,
    cancel,
    cancel_pipeline,
    drain,
    limit,
    pause,
    recover,
    resume,
    retry,
    retry_pipeline,
)
from reactor.operate.audit import Operator

__all__ = [
    "Changed",
    "Operator",
    "cancel",
    "cancel_pipeline",
    "drain",
    "limit",
    "pause",
    "recover",
    "resume",
    "retry",
    "retry_pipeline",
]
