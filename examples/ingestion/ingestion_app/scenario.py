"""What happens in a year: uploads, mistakes, imports, new factors, and a pod that is killed in the middle of an import.

All of it goes over HTTP, and is compared with the files. Meanwhile another client checks that every total that is shown
is right.
"""

import csv
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from uuid import uuid4

import httpx

from ingestion_app.client import DATA, Client, Mismatch, accepted, expect, until
from ingestion_app.system import System

TRAVEL = ["car", "plane", "train"]


class Scenario:
    def __init__(self, system: System, year: int) -> None:
        self.system = system
        self.year = year
        self.anna = Client(system.client("anna"))
        self.vera = Client(system.client("vera"))
        self.plane_file = ""
        """The one that counts, of two."""
        self.checks = 0
        """How many totals were compared meanwhile."""

    def run(self) -> None:
        with self.totals_checked():
            self.synchronise_units()
            self.upload_factors()
            self.click_twice()
            self.upload_two_files_at_once()
            self.upload_mistakes()
            self.kill_a_pod_during_an_import()
            self.change_factors()
            self.fill_another_module()
            self.recalculate_a_module()
        self.compare_reports()
        self.compare_current_runs()

    @contextmanager
    def totals_checked(self) -> Iterator[None]:
        """Until the block is left."""
        done = threading.Event()

        def check() -> None:
            client = Client(self.system.client("vera"))
            while not done.wait(0.02):
                for report in client.get("/api/reports", year=self.year):
                    if report["total_kg"] is not None:
                        expect(f"the total of {report['module']}", kg(report["total_kg"]), kg(report["recomputed_kg"]))
                        self.checks += 1

        with ThreadPoolExecutor(1) as checker:
            checking = checker.submit(check)
            try:
                yield
            finally:
                done.set()
        checking.result()

    def synchronise_units(self) -> None:
        job = self.anna.finished(self.anna.post("/api/units/sync"))
        expect("the units that were synchronised", job["result"], {"units": len(upstream("units"))})

    def upload_factors(self) -> None:
        job = self.anna.finished(accepted(self.upload_factors_of("travel", "factors_travel.csv")))
        expect("a calculation for each type with new factors, and the aggregation", job["children"], len(TRAVEL) + 1)
        expect("the facts about it", job["meta"], {"file": "factors_travel.csv", "stale_types": TRAVEL})
        again = self.anna.finished(accepted(self.upload_factors_of("travel", "factors_travel.csv")))
        expect("the jobs that follow from unchanged factors", again["children"], 0)

    def click_twice(self) -> None:
        """P9: the page sends the same key with each click."""
        key = str(uuid4())
        with ThreadPoolExecutor(4) as clicks:
            responses = list(clicks.map(lambda _: self.upload("plane", "plane.csv", key=key), range(4)))
        statuses = sorted(response.status_code for response in responses)
        expect("the statuses of four clicks", statuses, [200, 200, 200, 202])
        expect("the jobs that four clicks created", len({response.json()["job_id"] for response in responses}), 1)
        self.anna.finished(accepted(responses[0]))

    def upload_two_files_at_once(self) -> None:
        """P1, P2, P9: their jobs have the same scope, so they run one after the other, and the later one replaces the
        entries."""
        files = ("plane.csv", "plane_corrected.csv")
        with ThreadPoolExecutor(2) as uploads:
            responses = list(uploads.map(lambda file: self.upload("plane", file), files))
        jobs = [self.anna.finished(accepted(response)) for response in responses]
        [current] = [job for job in jobs if job["is_current"]]
        expect("when the current run was claimed", current["locked_at"], max(job["locked_at"] for job in jobs))
        self.plane_file = current["meta"]["file"]

    def upload_mistakes(self) -> None:
        partly = self.anna.finished(accepted(self.upload("car", "car_with_mistakes.csv")), "partial")
        expect("its message", partly["status_message"], "3 rows were rejected, 17 ingested")
        self.expect_rejected(partly, [6, 11, 17])
        nothing = self.anna.finished(accepted(self.upload("car", "car_unreadable.csv")), "failed")
        expect("its error", nothing["error"], "none of the 3 rows is valid")
        expect("its result", nothing["result"], {"rows": 0, "rejected": 3})
        self.expect_rejected(nothing, [2, 3, 4])

    def kill_a_pod_during_an_import(self) -> None:
        """P4, P7, P8"""
        self.hold_imports(page=7)
        submitted = self.anna.post("/api/imports", module="travel", data_entry_type="train", year=self.year)
        job = until("half of the import is done", lambda: self.job_at(submitted["job_id"], "page 6 of 12 read"))
        recover = f"/reactor/v1/jobs/{job['id']}/recover"
        expect("recover, by a viewer", self.vera.http.post(recover).status_code, 403)
        expect("recover, of a job that runs", self.anna.http.post(recover).status_code, 409)
        killed = job["locked_by"]
        self.system.kill(killed)
        self.hold_imports(page=None)
        job = self.anna.finished(submitted)
        if job["locked_by"] == killed:
            raise Mismatch(f"{killed} was killed, and has completed job {job['id']}")
        expect("how the attempt of the killed pod ended", job["earlier_attempts"][0]["outcome"], "lease_lost")
        expect("the rows that were imported", job["result"]["rows"], len(upstream("train")))

    def change_factors(self) -> None:
        """D16: the calculations are paused meanwhile, so that the stale factors can be seen."""
        self.anna.post("/reactor/v1/queues/recalc/pause")
        submitted = accepted(self.upload_factors_of("travel", "factors_travel_revised.csv"))
        until("the factors are stored", lambda: self.anna.job(submitted["job_id"])["state"] == "completed")
        path = "/api/factors/stale"
        stale = self.vera.get(path, year=self.year)
        found = [(factor["data_entry_type"], factor["activity"]) for factor in stale]
        expect("the stale factors", set(found), {("car", "petrol"), ("plane", "long haul"), ("plane", "short haul")})
        expect("their order", stale, sorted(stale, key=lambda factor: (factor["data_entry_type"], factor["id"])))
        for name, status in (("uma", 403), (None, 401)):
            response = self.system.client(name).get(path, params={"year": self.year})
            expect(f"stale factors, for {name or 'a client without a token'}", response.status_code, status)
        self.anna.post("/reactor/v1/queues/recalc/resume")
        job = self.anna.finished(submitted)
        expect("a calculation for each stale type, and the aggregation", job["children"], 3)
        expect("the stale factors, after the calculation", self.vera.get(path, year=self.year), [])

    def fill_another_module(self) -> None:
        self.anna.finished(accepted(self.upload_factors_of("energy", "factors_energy.csv")))
        self.anna.finished(accepted(self.upload("electricity", "electricity.csv", module="energy")))

    def recalculate_a_module(self) -> None:
        job = self.anna.finished(self.anna.post("/api/recalculations", module="travel", year=self.year))
        expect("the types of the module", job["result"], {"types": TRAVEL})

    def compare_reports(self) -> None:
        """The totals follow from the files."""
        factors = {**factors_of("factors_travel_revised.csv"), **factors_of("factors_energy.csv")}
        entries = {
            "car": [row for line, row in enumerate(rows_of("car_with_mistakes.csv"), 2) if line not in (6, 11, 17)],
            "plane": rows_of(self.plane_file),
            "train": upstream("train"),
            "electricity": rows_of("electricity.csv"),
        }
        totals = {
            name: sum(kg(row["quantity"]) * factors[name, row["activity"]] for row in rows)
            for name, rows in entries.items()
        }
        expected = {"energy": totals["electricity"], "travel": sum(totals[name] for name in TRAVEL)}
        reports = self.vera.get("/api/reports", year=self.year)
        found = {report["module"]: report["total_kg"] and kg(report["total_kg"]) for report in reports}
        expect("the totals", found, expected)

    def compare_current_runs(self) -> None:
        """One for each combination; the entries that count were written by them."""
        runs = self.vera.get("/api/runs/current", year=self.year)
        combinations = [tuple(run["combination"].values()) for run in runs]
        expect("current runs of the same combination", len(combinations) - len(set(combinations)), 0)
        written = {(run["combination"]["data_entry_type"], run["job_type"]): run["entries"] for run in runs}
        expect("the planes of the current run", written["plane", "csv_ingest"], len(rows_of(self.plane_file)))
        expect("the trains of the current run", written["train", "api_ingest"], len(upstream("train")))

    def upload(
        self, data_entry_type: str, file: str, *, module: str = "travel", key: str | None = None
    ) -> httpx.Response:
        about = {"module": module, "data_entry_type": data_entry_type, "year": self.year}
        return self.anna.upload("/api/entries", file, about, key)

    def upload_factors_of(self, module: str, file: str) -> httpx.Response:
        return self.anna.upload("/api/factors", file, {"module": module, "year": self.year})

    def hold_imports(self, page: int | None) -> None:
        """The upstream system answers requests for this page, and later ones, when it is called again with None."""
        self.anna.http.post("/upstream/hold", params={} if page is None else {"page": page}).raise_for_status()

    def job_at(self, job_id: int, message: str) -> dict[str, Any] | None:
        job = self.anna.job(job_id)
        return job if job["state"] == "running" and job["status_message"] == message else None

    def expect_rejected(self, job: dict[str, Any], lines: list[int]) -> None:
        rejected = self.vera.get(f"/api/runs/{job['id']}/rejected")
        expect("the lines that were rejected", [row["line"] for row in rejected], lines)


def kg(text: str) -> Decimal:
    return Decimal(text)


def rows_of(file: str) -> list[dict[str, str]]:
    with (DATA / file).open(newline="") as content:
        return list(csv.DictReader(content))


def factors_of(file: str) -> dict[tuple[str, str], Decimal]:
    return {(row["data_entry_type"], row["activity"]): kg(row["kg_per_unit"]) for row in rows_of(file)}


def upstream(name: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads((DATA / "upstream" / f"{name}.json").read_text())
    return found
