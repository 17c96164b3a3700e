"""`make stress`: everything at once, checked against a model."""

import os
import random

import pytest
from structlog.testing import capture_logs

from tests.stress.stress import run

SECONDS = float(os.environ.get("REACTOR_TEST_STRESS_SECONDS") or 0)
SEED = int(os.environ.get("REACTOR_TEST_STRESS_SEED") or 0) or random.randrange(1, 10**6)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SECONDS, reason="takes minutes: run `make stress`")]


async def test_a_model_explains_everything_that_the_engine_does(database: str) -> None:
    print(f"\nseed {SEED}; repeat its choices with: make stress SEED={SEED} SECONDS={SECONDS:g}", flush=True)
    with capture_logs():
        report = await run(database, seconds=SECONDS, seed=SEED)
    print(report.text(), flush=True)
    assert report.failures == {}, f"seed {SEED}"
