"""Batch mode: runs one simulation in this machine's own worker, prints its returns, and exits with 0 or 1.

python -m simulation_app.batch 2026-01-05 2026-01-09 balanced momentum-5
"""

import asyncio
import subprocess
import sys

import asyncpg
import reactor
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import async_sessionmaker

from simulation_app.database import database_url, open_engine
from simulation_app.results import find_results
from simulation_app.simulation import MAX_MODEL_DAYS, Simulation

QUEUE = "batch"
WORKER = ["reactor", "worker", "--app", "simulation_app.handlers", "--queues", QUEUE, "--once"]


def main(first: str, last: str, *models: str) -> int:
    """J13: 0, if every model-day completed."""
    try:
        plan = Simulation.model_validate({"first": first, "last": last, "models": models})
    except ValidationError as error:
        print(error, file=sys.stderr)
        return 1
    submitted = asyncio.run(submit(plan))
    if submitted.outcome == "busy":
        print(
            f"Simulation {submitted.id} is not done. If it is abandoned: reactor cancel {submitted.id}", file=sys.stderr
        )
        return 1
    subprocess.run([sys.executable, "-m", *WORKER], check=False)
    state = asyncio.run(show(submitted.id))
    return int(state != "completed")


async def submit(plan: Simulation) -> reactor.Submitted:
    """Without an idempotency key: the same range runs again. Once, because nothing waits for another attempt."""
    connection = await asyncpg.connect(database_url())
    try:
        return await reactor.submit(connection, **plan.job, queue=QUEUE, max_attempts=1)
    finally:
        await connection.close()


async def show(job_id: int) -> str:
    engine = open_engine()
    async with async_sessionmaker(engine)() as session:
        connection = await session.connection()
        found = await connection.exec_driver_sql("select state from reactor.jobs where id = $1", (job_id,))
        state: str = found.scalar_one()
        for result in await find_results(session, job_id, None, None, MAX_MODEL_DAYS, 0):
            print(f"{result.date}  {result.model:12}  {result.value:>12}  {result.day_return:>+8.4%}")
    await engine.dispose()
    print(f"simulation {job_id}: {state}")
    return state


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
