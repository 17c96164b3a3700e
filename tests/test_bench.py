"""`make bench SHORT=1`: the benchmarks of drains, of the core and of growing costs run. Results are not checked."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("REACTOR_TEST_BENCH"), reason="run `make bench SHORT=1`"),
]

BENCH = Path(__file__).parent.parent / "bench"


def results(script: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(BENCH / script), "--quick", "--json", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    table: dict[str, Any] = json.loads(done.stdout)
    return table


def test_the_benchmark_of_drains_runs(server: str) -> None:
    table = results("drain.py", "--only", "bare", "--server", server)
    assert all(row["jobs_per_second"] > 0 for row in table.values())
    # On a busy machine a handler may start before the inserter receives its commit, which makes the latency negative.
    assert "p50_ms" in table["bare, batches of 200"]


def test_the_benchmark_of_the_core_compares_two_checkouts() -> None:
    # On a server of its own: it reads the CPU time of server processes, which must run on this machine.
    table = results("core.py", "--only", "batches", "lone", "--beside", str(BENCH.parent))
    assert all(len(side) == 1 and side[0] > 0 for sides in table.values() for side in sides)
    assert len(table["WAL bytes per job"]) == 2


def test_the_benchmark_of_growing_costs_measures_every_figure() -> None:
    tables = results("costs.py")
    for title, rows in tables.items():
        assert rows, title
        assert all(cell[0].isdecimal() for row in rows for cell in row["cells"]), title
