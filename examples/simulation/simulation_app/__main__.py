"""`make example-simulation`: starts everything, runs the scenario, and stops everything.

    python -m simulation_app            exit code 0: all was as expected; 1: it was not
    SERVE=1 python -m simulation_app    keeps running, for a look at the page

It uses the database of REACTOR_DATABASE_URL, or else an embedded PostgreSQL in a temporary folder.
"""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import httpx
from reactor import ReactorError
from reactor.embedded import start_embedded

from simulation_app.client import Client, Mismatch
from simulation_app.scenario import WEEKS, Scenario
from simulation_app.system import System, SystemFailed, running


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    port = int(os.environ.get("PORT", "0"))
    with temporary_folder() as folder, database(folder) as url, running(url, folder, port) as system:
        verify(system)
        if os.environ.get("SERVE"):
            serve(system)


def verify(system: System) -> None:
    scenario = Scenario(system, unused_week(system))
    scenario.run()
    print(
        f"simulation: verified. {scenario.compared} model-days have the same positions, trades and returns each time:"
        " in batch mode, in server mode with a pod that was killed, and after a retry of those that had failed."
    )


def unused_week(system: System) -> date:
    """The Monday of a week without results: in a database that is kept, each run has weeks of its own."""
    monday = date(2026, 1, 5)
    client = Client(system.client("vera"))
    while client.get("/api/results", date=monday, limit=1):
        monday += timedelta(days=7 * WEEKS)
    return monday


def serve(system: System) -> None:
    print(f"\npage      {system.address}/\ntoken     {system.tokens['anna']}\nstop      Ctrl-C", flush=True)
    signal.pause()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="simulation-"))
    # The server of root runs under another account, which must be able to enter.
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(folder: Path) -> Iterator[str]:
    if given := os.environ.get("REACTOR_DATABASE_URL"):
        yield given
        return
    with start_embedded(folder, version=18) as server:
        yield server.url()


if __name__ == "__main__":
    try:
        main()
    except (Mismatch, SystemFailed, ReactorError, httpx.HTTPError) as error:
        sys.exit(f"simulation: failed. {error}")
    except KeyboardInterrupt:
        sys.exit(130)
