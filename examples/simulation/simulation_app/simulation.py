"""What a simulation computes, as the payload of its job."""

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

DATA = Path(__file__).parent.parent / "data"
MODELS: dict[str, dict[str, Any]] = json.loads((DATA / "models.json").read_text())
MAX_MODEL_DAYS = 2_000


Day = Annotated[date, Field(ge=date(2020, 2, 3), le=date(2039, 12, 30))]
"""For which the market has prices."""


class ModelDay(NamedTuple):
    """The unit of work: one model on one date."""

    date: date
    model: str

    @property
    def step(self) -> str:
        return f"{self.date}/{self.model}"

    @classmethod
    def of(cls, step: str) -> Self:
        day, _, model = step.partition("/")
        return cls(date.fromisoformat(day), model)


def known(model: str) -> str:
    if model not in MODELS:
        raise ValueError(f"unknown model; known are {', '.join(MODELS)}")
    return model


Model = Annotated[str, AfterValidator(known)]


class Simulation(BaseModel):
    """A range of dates, and a list of models."""

    model_config = ConfigDict(extra="forbid")

    first: Day
    last: Day
    models: Annotated[list[Model], Field(min_length=1, max_length=len(MODELS))]

    @model_validator(mode="after")
    def check(self) -> Self:
        self.models = sorted(set(self.models))
        if not self.dates:
            raise ValueError("there is no trading day between first and last")
        if len(self.model_days) > MAX_MODEL_DAYS:
            raise ValueError(f"these are more than {MAX_MODEL_DAYS} model-days; shorten the range")
        return self

    @property
    def dates(self) -> list[date]:
        """The trading days: Monday to Friday."""
        days = (self.first + timedelta(n) for n in range((self.last - self.first).days + 1))
        return [day for day in days if day.weekday() < 5]

    @property
    def model_days(self) -> list[ModelDay]:
        return [ModelDay(day, model) for day in self.dates for model in self.models]

    @property
    def job(self) -> dict[str, Any]:
        """J6, J16: the fields of its job. One simulation runs at a time, and its model-days exist before it runs."""
        return {
            "job_type": "simulation",
            "payload": self.model_dump(mode="json"),
            "scope": "simulation",
            "exclusive": True,
            "steps": [day.step for day in self.model_days],
            "tags": [f"first={self.first}", f"last={self.last}", *(f"model={model}" for model in self.models)],
        }

    @property
    def key(self) -> str:
        """J7: the same range and models are the same request."""
        return f"{self.first}/{self.last}/{','.join(self.models)}"
