"""A job and pipeline engine on PostgreSQL: insert a row, and it is run."""

from reactor.backoff import exponential, fixed
from reactor.claim import claim_job
from reactor.context import Context, chain_job
from reactor.embed import Reactor, run_job
from reactor.errors import ReactorError
from reactor.job import Job, JobState
from reactor.lease import heartbeat
from reactor.outcome import Cancelled, Completed, Fail, Partial, Retry, Skip, Snooze
from reactor.pipeline import Pipeline, SubmittedPipeline
from reactor.registry import Registry, around, get_handler, lifespan, register, schedule
from reactor.steps import Step, Summary
from reactor.submit import NewJob, Submitted, submit, submit_many
from reactor.thread import SyncContext
from reactor.wait import Finished, wait

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
    "Pipeline",
    "Reactor",
    "ReactorError",
    "Registry",
    "Retry",
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
