"""A job and pipeline engine on PostgreSQL: insert a row, and it is run."""

from typing import TYPE_CHECKING, Any

from reactor.backoff import exponential, fixed
from reactor.claim import claim_job
from reactor.context import Context
from reactor.errors import ReactorError
from reactor.job import Job, JobState
from reactor.lease import heartbeat
from reactor.outcome import Cancelled, Completed, Fail, Partial, Retry, Snooze
from reactor.registry import Registry, around, get_handler, lifespan, register
from reactor.submit import NewJob, Submitted, submit, submit_many
from reactor.thread import SyncContext
from reactor.wait import Finished, wait

if TYPE_CHECKING:
    from reactor.embed import Reactor as Reactor

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "Completed",
    "Context",
    "Fail",
    "Finished",
    "Job",
    "JobState",
    "NewJob",
    "Partial",
    "Reactor",
    "ReactorError",
    "Registry",
    "Retry",
    "Snooze",
    "Submitted",
    "SyncContext",
    "around",
    "claim_job",
    "exponential",
    "fixed",
    "get_handler",
    "heartbeat",
    "lifespan",
    "register",
    "submit",
    "submit_many",
    "wait",
]


def __getattr__(name: str) -> Any:
    # Alembic comes with it, which who only submits jobs or registers handlers need not load.
    if name == "Reactor":
        from reactor.embed import Reactor

        return Reactor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
