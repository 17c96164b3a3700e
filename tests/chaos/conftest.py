import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reactor.database.connection import connect
from reactor.database.migrate import migrate
from reactor.testing import fast_temporary_folder
from tests.chaos.workload import LEDGER
from tests.support.postgres import Postgres

_SMALL_DISK = "256m"


@pytest.fixture(scope="session")
def template() -> Iterator[Postgres]:
    """A migrated cluster, which is stopped: to copy it is quicker than to make one."""
    folder = Path(tempfile.mkdtemp(prefix="reactor-chaos-", dir=fast_temporary_folder()))
    folder.chmod(0o711)
    yield asyncio.run(_make(folder / "template"))
    shutil.rmtree(folder, ignore_errors=True)


async def _make(folder: Path) -> Postgres:
    postgres = Postgres(folder)
    await postgres.create()
    postgres.configure()
    await postgres.start()
    try:
        await migrate(postgres.url())
        async with connect(postgres.url(), name="test") as connection:
            await connection.execute(LEDGER)
    finally:
        await postgres.stop()
    return postgres


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A folder in a file system of its own."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK},mode=711", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk must be mounted, which root may do on most machines: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
