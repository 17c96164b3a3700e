"""A job and pipeline engine on PostgreSQL: insert a row, and it is run."""

from reactor.backoff import exponential, fixed
from reactor.claim import claim_job
from reactor.context import Context
from reactor.errors import ReactorError
from reactor.job import Job, JobState
from reactor.lease import heartbeat
from reactor.outcome import Cancelled, Completed, Fail, Partial, Retry, Skip, Snooze
from reactor.registry import Registry, around, get_handler, lifespan, register
from reactor.steps import Step, Summary
from reactor.submit import NewJob, Submitted, submit, submit_many
from reactor.thread import SyncContext

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "Completed",
    "Context",
    "Fail",
    "Job",
    "JobState",
    "NewJob",
    "Partial",
    "ReactorError",
    "Registry",
    "Retry",
    "Skip",
    "Snooze",
    "Step",
    "Submitted",
    "Summary",
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
]
