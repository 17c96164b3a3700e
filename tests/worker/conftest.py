"""A reactor in this process whose handlers tests can watch."""

from collections.abc import AsyncIterator

import pytest

from reactor import Registry
from reactor.pod.in_process import Reactor
from tests.support.until import until
from tests.support.work import Work


@pytest.fixture
def work(registry: Registry) -> Work:
    return Work(registry)


@pytest.fixture
async def reactor(database: str, work: Work) -> AsyncIterator[Reactor]:
    async with Reactor(
        database, registry=work.registry, poll_seconds=0.5, lease_seconds=60, heartbeat_seconds=15, grace_seconds=0
    ) as reactor:
        await until(lambda: reactor.is_well)
        yield reactor
        work.let_go.set()
