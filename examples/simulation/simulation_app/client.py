"""A client of the front end, for the scenario."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

DEADLINE_SECONDS = 60

Found = TypeVar("Found")
Json = dict[str, Any]


class Mismatch(Exception):
    """The application did something else than expected."""


def expect(what: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise Mismatch(f"{what}: expected {expected!r}, found {actual!r}")


def until(what: str, find: Callable[[], Found | None]) -> Found:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        if found := find():
            return found
        if time.monotonic() > deadline:
            raise Mismatch(f"{what}: this did not happen within {DEADLINE_SECONDS} s")
        time.sleep(0.05)


class Client:
    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str, **query: Any) -> Any:
        return self.http.get(path, params=query).raise_for_status().json()

    def trigger(self, **plan: Any) -> httpx.Response:
        return self.http.post("/api/simulations", json={name: jsonable(value) for name, value in plan.items()})

    def started(self, **plan: Any) -> int:
        """The id of a new simulation."""
        response = self.trigger(**plan)
        expect("the status of a trigger", response.status_code, 202)
        job_id: int = response.json()["job_id"]
        return job_id

    def operate(self, action: str, job_id: int) -> None:
        self.http.post(f"/reactor/v1/jobs/{job_id}/{action}").raise_for_status()

    def status(self, job_id: int) -> Json:
        status: Json = self.get(f"/api/simulations/{job_id}")
        return status

    def finished(self, job_id: int, state: str = "completed") -> Json:
        def find() -> Json | None:
            status = self.status(job_id)
            return status if status["finished_at"] else None

        status = until(f"simulation {job_id} ends", find)
        expect(f"the state of simulation {job_id}", status["state"], state)
        return status

    def results(self, job_id: int) -> list[Json]:
        """Of a simulation, without its id."""
        return [
            {name: value for name, value in result.items() if name != "job_id"}
            for result in self.get("/api/results", job_id=job_id)
        ]


def jsonable(value: Any) -> Any:
    return value if isinstance(value, list) else str(value)
