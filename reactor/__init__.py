"""A job and pipeline engine on PostgreSQL: insert a row, and it is run."""

from reactor.children import Child
from reactor.client.pipeline import Pipeline, SubmittedPipeline
from reactor.client.submit import JobOptions, NewJob, submit, submit_many
from reactor.client.submitted import Submitted
from reactor.client.wait import Finished, wait
from reactor.errors import ReactorError
from reactor.handlers.backoff import exponential, fixed
from reactor.handlers.context import Context, chain_job
from reactor.handlers.limits import Limit
from reactor.handlers.registry import Registry, around, get_handler, lifespan, register, schedule
from reactor.handlers.step import Step
from reactor.handlers.steps import Summary
from reactor.handlers.sync_context import SyncContext
from reactor.job import Job, JobState
from reactor.job_log import LogOptions
from reactor.lifecycle.claim import claim_job
from reactor.lifecycle.lease import heartbeat
from reactor.outcome import Cancelled, Completed, Fail, Partial, Retry, Skip, Snooze
from reactor.pod.in_process import Reactor, run_job
from reactor.schedules.declaration import ScheduleOptions

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "Child",
    "Completed",
    "Context",
    "Fail",
    "Finished",
    "Job",
    "JobOptions",
    "JobState",
    "Limit",
    "LogOptions",
    "NewJob",
    "Partial",
    "Pipeline",
    "Reactor",
    "ReactorError",
    "Registry",
    "Retry",
    "ScheduleOptions",
    "Skip",
    "Snooze",
    "Step",
    "Submitted",
    "SubmittedPipeline",
    "Summary",
    "SyncContext",
    "around",
    "chain_job",
    "claim_job",
    "exponential",
    "fixed",
    "get_handler",
    "heartbeat",
    "lifespan",
    "register",
    "run_job",
    "schedule",
    "submit",
    "submit_many",
    "wait",
]


def __dir__() -> list[str]:
    """Without the modules that were imported on the way: they can be imported, and are not offered."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
