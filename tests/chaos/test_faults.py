"""`make chaos`: real pods and a server of their own, under one fault after the other."""

import os
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, Fault
from tests.chaos.world import world_on
from tests.support.postgres import Postgres

WHICH = os.environ.get("REACTOR_TEST_CHAOS", "")
"""`all`, or `short` for those that .ci/run takes."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not WHICH, reason="takes minutes: run `make chaos`")]


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.is_short or WHICH != "short"], ids=lambda fault: fault.name
)
async def test_no_job_is_lost_doubled_or_charged_by_a_fault(
    template: Postgres, folder: Path, tmp_path: Path, request: pytest.FixtureRequest, fault: Fault
) -> None:
    """Guarantees 1 to 6 and 9."""
    if fault.needs_small_disk:
        request.getfixturevalue("small_disk")
    async with world_on(
        template,
        folder,
        tmp_path,
        lease_seconds=fault.lease_seconds,
        max_attempts=5 if fault.kills_handlers else 1,
    ) as world:
        await fault.start(world)
        await world.ready()
        await world.begin(seconds=fault.longest_job_seconds)
        await fault.happen(world)
        await world.progresses()
        found = await world.finish()
        print(f"\n{fault.name}: {world.count} jobs, {len(found)} finds")
        assert not found, "\n".join(found[:50])
