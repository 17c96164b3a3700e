"""A client of the front end, for the scenario."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx

from ingestion_app.system import FOLDER

DATA = FOLDER / "data"
DEADLINE_SECONDS = 60

Found = TypeVar("Found")


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


def accepted(response: httpx.Response) -> dict[str, Any]:
    answer: dict[str, Any] = response.raise_for_status().json()
    return answer


class Client:
    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str, **query: Any) -> Any:
        return self.http.get(path, params=query).raise_for_status().json()

    def post(self, path: str, **query: Any) -> Any:
        return self.http.post(path, params=query).raise_for_status().json()

    def upload(self, path: str, file: str, query: Mapping[str, Any], key: str | None = None) -> httpx.Response:
        with (DATA / file).open("rb") as content:
            headers = {"Idempotency-Key": key} if key else {}
            return self.http.post(path, params=query, files={"file": (file, content)}, headers=headers)

    def job(self, job_id: int) -> dict[str, Any]:
        job: dict[str, Any] = self.get(f"/reactor/v1/jobs/{job_id}")
        return job

    def finished(self, accepted: dict[str, Any], state: str = "completed") -> dict[str, Any]:
        """D11: the job that was submitted, when its whole pipeline has ended."""
        path = f"/reactor/v1/pipelines/{accepted['pipeline_id']}"

        def find() -> dict[str, Any] | None:
            found: dict[str, Any] = self.get(path)
            return found if found["pipeline"]["state"] != "running" else None

        pipeline = until(f"the pipeline of job {accepted['job_id']} ends", find)
        ids = [job["id"] for job in pipeline["jobs"]]
        expect("a pipeline lists its jobs in the order of their ids", ids, sorted(ids))
        expect(f"the state of {path}", pipeline["pipeline"]["state"], state)
        return self.job(accepted["job_id"])
