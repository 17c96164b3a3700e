"""The benchmark of drains keeps running; what it measures is not judged here."""

import json
import subprocess
import sys
from pathlib import Path

DRAIN = Path(__file__).parent.parent / "bench" / "drain.py"


def test_the_bare_loop_drains_and_answers(server: str) -> None:
    done = subprocess.run(
        [sys.executable, str(DRAIN), "--quick", "--only", "bare", "--json", "--server", server],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert all(row["jobs_per_second"] > 0 for row in table.values())
    # On a busy machine a handler may start before the inserter hears of its commit, and the figure be negative.
    assert "p50_ms" in table["bare, batches of 200"]
