"""A job and pipeline engine on PostgreSQL: insert a row, and it is run."""

from reactor.errors import ReactorError
from reactor.job import Job, JobState
from reactor.submit import NewJob, Submitted, submit, submit_many

__version__ = "0.1.0"

__all__ = ["Job", "JobState", "NewJob", "ReactorError", "Submitted", "submit", "submit_many"]
