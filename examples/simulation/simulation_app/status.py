"""What the API shows of a simulation: reactor's job, with its steps as model-days."""

from datetime import date, datetime
from typing import Any, Self

from pydantic import BaseModel

from simulation_app.simulation import ModelDay


class ModelDayShown(BaseModel):
    date: date
    model: str
    state: str
    error: str | None
    """Why it failed or was skipped, or why its last run failed."""
    attempts: int
    run_after: datetime | None
    seconds: float | None
    """The duration of its runs together."""
    started_at: datetime | None
    finished_at: datetime | None


class Counts(BaseModel):
    total: int
    pending: int
    running: int
    completed: int
    failed: int
    skipped: int
    current: str | None
    """The model-day that started last, of those that are running."""


class Durations(BaseModel):
    """In seconds."""

    waited: float
    queued: float
    ran: float
    total: float


class SimulationShown(BaseModel):
    """J18: every one has its durations."""

    job_id: int
    pipeline_id: str
    state: str
    first: date
    last: date
    models: list[str]
    progress: float | None
    message: str | None
    error: str | None
    pod: str | None
    counts: Counts
    durations: Durations
    created_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, job: dict[str, Any]) -> Self:
        return cls.model_validate(fields_of(job))


class Status(SimulationShown):
    """J4: with each of its model-days."""

    model_days: list[ModelDayShown]

    @classmethod
    def of(cls, job: dict[str, Any]) -> Self:
        model_days = [
            step | ModelDay.of(step["name"])._asdict() | {"seconds": step["ran"]}
            for step in sorted(job["steps"], key=lambda step: step["position"])
        ]
        return cls.model_validate(fields_of(job) | {"model_days": model_days})


class Page(BaseModel):
    simulations: list[SimulationShown]
    before: int | None
    """Of the next page; null: this is the last."""


def fields_of(job: dict[str, Any]) -> dict[str, Any]:
    # Lists of jobs have tags, and no payload.
    tags = [tag.partition("=") for tag in job["tags"]]
    return job | {
        "job_id": job["id"],
        "message": job["status_message"],
        "pod": job["locked_by"],
        "counts": job["step_counts"],
        **{name: value for name, _, value in tags},
        "models": [value for name, _, value in tags if name == "model"],
    }
