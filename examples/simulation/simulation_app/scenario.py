"""Simulations of a few weeks: in batch mode, with a pod that is killed halfway, and with a market that has outages.

All of it goes over HTTP, and each run of a range has to reproduce the results of the others.
"""

from datetime import date, timedelta
from itertools import groupby, pairwise
from typing import Any

from simulation_app.client import Client, Json, Mismatch, expect, until
from simulation_app.system import System

MODELS = ["balanced", "momentum-5", "reversal-5"]
WEEKS = 3


class Scenario:
    def __init__(self, system: System, monday: date) -> None:
        self.system = system
        self.anna = Client(system.client("anna"))
        self.vera = Client(system.client("vera"))
        self.week, self.next_week, self.third_week = (week_of(monday + timedelta(7 * n)) for n in range(WEEKS))
        self.compared = 0
        """How many model-days had the results that they should have."""

    def run(self) -> None:
        undisturbed = self.run_a_batch()
        job_id = self.trigger()
        self.refuse_another_range(job_id)
        self.system.start_pods("pod-1", "pod-2")
        self.kill_a_pod_halfway(job_id)
        self.compare(job_id, undisturbed)
        self.read_results(job_id)
        self.read_the_log(job_id)
        self.interrupt_the_market()

    def run_a_batch(self) -> list[Json]:
        """J13: before there is a pod. Batch mode runs one simulation and exits; it fails with a model-day."""
        code, printed = self.system.run_batch(self.week["first"], self.week["last"], *MODELS)
        expect(f"the exit code of batch mode, which printed:\n{printed}", code, 0)
        [job] = self.vera.get("/api/simulations", limit=1)["simulations"]
        expect("the counts of the batch", (job["counts"]["completed"], job["counts"]["total"]), (15, 15))
        self.set_outage(self.third_week["first"], "balanced", requests=100)
        code, _ = self.system.run_batch(self.third_week["first"], self.third_week["first"], "balanced")
        expect("the exit code of batch mode, if a model-day fails", code, 1)
        self.set_outage(self.third_week["first"], "balanced", requests=0)
        return self.vera.results(job["job_id"])

    def trigger(self) -> int:
        """J7, J16: the model-days exist and are counted, although there is no pod yet."""
        expect("the health of the front end", self.vera.http.get("/health").status_code, 200)
        job_id = self.anna.started(**self.week, models=MODELS)
        status = self.vera.status(job_id)
        counts = {"total": 15, "pending": 15, "running": 0, "completed": 0, "failed": 0, "skipped": 0, "current": None}
        expect("the counts before a pod runs", status["counts"], counts)
        expect("the state of the model-days", {day["state"] for day in status["model_days"]}, {"pending"})
        again = self.anna.trigger(**self.week, models=MODELS[::-1])
        found = (again.status_code, again.json()["job_id"], again.json()["outcome"])
        expect("the same range again", found, (200, job_id, "existing"))
        return job_id

    def refuse_another_range(self, job_id: int) -> None:
        """J6"""
        response = self.anna.trigger(**self.next_week, models=MODELS)
        expect("the status of a second simulation", response.status_code, 409)
        running = response.json()["job"]
        expect("the job that runs", running["id"], job_id)
        expect("its details", running["step_counts"]["total"], 15)
        expect("a trigger by a viewer", self.vera.trigger(**self.week, models=MODELS).status_code, 403)

    def kill_a_pod_halfway(self, job_id: int) -> None:
        """J4, J8: completed model-days don't run again, the others do."""

        def halfway() -> Json | None:
            status = self.vera.status(job_id)
            return status if status["counts"]["completed"] >= 6 and status["counts"]["running"] else None

        before = until("the simulation is halfway", halfway)
        self.system.kill(before["pod"])
        self.refuse_another_range(job_id)
        after = self.anna.finished(job_id)
        if after["pod"] == before["pod"]:
            raise Mismatch(f"{before['pod']} was killed, and has completed simulation {job_id}")
        expect("the model-days that had completed", completed(after) | completed(before), completed(after))
        expect("the runs of each model-day", {day["attempts"] for day in after["model_days"]}, {1})
        expect("the progress", after["progress"], 1)
        durations = after["durations"]
        if not 0 < durations["ran"] <= durations["total"]:
            raise Mismatch(f"the durations: found {durations}")

    def compare(self, job_id: int, expected: list[Json]) -> None:
        found = self.vera.results(job_id)
        expect("the number of results", (len(expected), len(found)), (15, 15))
        for one, other in zip(expected, found, strict=True):
            expect(f"the result of {one['date']}/{one['model']}", other, one)
        expect("the dates with trades", {result["date"] for result in found if result["trades"]}, self.days)
        self.compared += len(found)

    def read_results(self, job_id: int) -> None:
        """J1: by job, date and model, across jobs."""
        day = str(self.week["last"])
        found = self.vera.get("/api/results", date=day, model="balanced")
        expect("the simulations of a model-day", len(found), 2)
        expect("their values", found[0]["value"], found[1]["value"])
        [result] = self.vera.get("/api/results", job_id=job_id, date=day, model="balanced")
        worth = sum(position["quantity"] * cents(position["price"]) for position in result["positions"])
        expect("the value of cash and positions", cents(result["cash"]) + worth, cents(result["value"]))
        days = self.vera.get("/api/results", job_id=job_id, model="balanced")
        expect("the dates of a model", {result["date"] for result in days}, self.days)

    def read_the_log(self, job_id: int) -> None:
        """J17"""
        lines = self.vera.get(f"/api/simulations/{job_id}/logs/{self.week['last']}/balanced")
        expect("its second line", lines[1]["message"], "spread over 1 days: ALFA, BETA, GAMMA, DELTA, OMEGA")
        expect("the step of its lines", {line["step"] for line in lines}, {f"{self.week['last']}/balanced"})

    def interrupt_the_market(self) -> None:
        """J3, J5, J15: one request that fails is repeated. Where none succeeds, the model-day fails, and what needs its
        positions is skipped. A retry runs these, and the result is that of a run without outages."""
        first, second = self.next_week["first"], self.next_week["first"] + timedelta(1)
        plan: Json = {"first": first, "last": second + timedelta(1), "models": MODELS}
        self.set_outage(first, "balanced", requests=1)
        self.set_outage(second, "momentum-5", requests=100)
        job_id = self.anna.started(**plan)
        partly = self.anna.finished(job_id, "partial")
        days = {(day["date"], day["model"]): day for day in partly["model_days"]}
        expect("the runs of a model-day with one failed request", days[str(first), "balanced"]["attempts"], 2)
        failed = days[str(second), "momentum-5"]
        expect("the runs of a model-day that fails", (failed["state"], failed["attempts"]), ("failed", 3))
        if "503" not in failed["error"]:
            raise Mismatch(f"its error: found {failed['error']!r}")
        expect("the date after it", days[str(plan["last"]), "momentum-5"]["state"], "skipped")
        expect("the others", (partly["counts"]["completed"], partly["counts"]["total"]), (7, 9))
        check_order(partly["model_days"])
        self.set_outage(second, "momentum-5", requests=0)
        self.anna.operate("retry", job_id)
        after = self.anna.finished(job_id)
        expect("the model-days that the retry left alone", completed(after) | completed(partly), completed(after))
        self.compare_with_another_range(job_id, plan)

    def compare_with_another_range(self, job_id: int, plan: Json) -> None:
        """The same dates and fewer models: another request, which has to reproduce the values."""
        model = "momentum-5"
        again = self.anna.started(**{**plan, "models": [model]})
        self.anna.finished(again)
        expected = [result for result in self.vera.results(job_id) if result["model"] == model]
        expect("the results after a retry", expected, self.vera.results(again))
        self.compared += len(expected)

    def set_outage(self, day: date, model: str, requests: int) -> None:
        self.anna.http.put(f"/market/outages/{day}/{model}", params={"requests": requests}).raise_for_status()

    @property
    def days(self) -> set[str]:
        return {str(self.week["first"] + timedelta(n)) for n in range(5)}


def week_of(monday: date) -> dict[str, date]:
    return {"first": monday, "last": monday + timedelta(4)}


def completed(status: Json) -> set[tuple[Any, ...]]:
    """The model-days that have completed, and when."""
    return {
        (day["date"], day["model"], day["finished_at"]) for day in status["model_days"] if day["state"] == "completed"
    }


def check_order(days: list[Json]) -> None:
    """The model-days of a date start when those of the date before have ended."""
    dates = [list(group) for _, group in groupby(days, key=lambda day: day["date"])]
    for one, following in pairwise(dates):
        if max(day["finished_at"] for day in one) > min(day["started_at"] for day in following):
            raise Mismatch(
                f"the model-days of {one[0]['date']} ended after the first of {following[0]['date']} started"
            )


def cents(amount: str) -> int:
    return round(float(amount) * 100)
