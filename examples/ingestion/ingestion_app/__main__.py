"""`make example-ingestion`: starts everything, runs the scenario, and stops everything.

    python -m ingestion_app            exit code 0: all was as expected; 1: it was not
    SERVE=1 python -m ingestion_app    keeps running, for a look at the page

It uses the database of REACTOR_DATABASE_URL, or else an embedded PostgreSQL in a temporary folder.
"""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
from reactor import ReactorError
from reactor.embedded import start_embedded

from ingestion_app.client import Client, Mismatch
from ingestion_app.scenario import Scenario
from ingestion_app.system import System, SystemFailed, running


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    port = int(os.environ.get("PORT", "0"))
    with temporary_folder() as folder, database(folder) as url, running(url, folder, port) as system:
        verify(system)
        if os.environ.get("SERVE"):
            serve(system)


def verify(system: System) -> None:
    year = unused_year(system)
    scenario = Scenario(system, year)
    scenario.run()
    print(
        f"ingestion: verified. The reports of {year} match the files to the last digit, after two clicks on one upload,"
        f" two uploads at once and the death of a pod; {scenario.checks} totals that were shown meanwhile were right."
    )


def unused_year(system: System) -> int:
    """In a database that is kept, each run has a year of its own."""
    year = datetime.now(UTC).year
    client = Client(system.client("vera"))
    while client.get("/api/reports", year=year):
        year += 1
    return year


def serve(system: System) -> None:
    print(f"\npage      {system.address}/\ntoken     {system.tokens['anna']}\nstop      Ctrl-C", flush=True)
    signal.pause()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ingestion-"))
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
        sys.exit(f"ingestion: failed. {error}")
    except KeyboardInterrupt:
        sys.exit(130)
