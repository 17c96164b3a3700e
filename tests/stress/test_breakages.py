"""The stress finds what it is there to find: with a broken guarantee it turns red."""

import random

import pytest
from structlog.testing import capture_logs

from reactor.database.connection import Connection
from tests.stress.breakages import BREAKAGES, Breakage, break_engine
from tests.stress.stress import run
from tests.stress.test_stress import SECONDS

ENOUGH_SECONDS = 60

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SECONDS, reason="takes minutes: run `make stress`")]


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.name)
async def test_the_stress_finds_a_guarantee_that_was_broken_on_purpose(
    database: str, connection: Connection, breakage: Breakage
) -> None:
    await break_engine(connection, breakage)
    with capture_logs():
        report = await run(
            database,
            seconds=ENOUGH_SECONDS,
            seed=random.randrange(1, 10**6),
            only=breakage.features,
            until_red=breakage.kinds,
        )
    assert breakage.kinds & report.totals.keys(), f"{breakage.name} was not noticed: {report.text()}"
