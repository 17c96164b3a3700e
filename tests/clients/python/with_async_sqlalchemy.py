"""SQLAlchemy with mapped classes, asynchronous, on asyncpg."""

import os
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID, uuid4

from scenarios import Skipped, main
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy_models import Dependency, Job
from with_sqlalchemy import bound, describe, every_attribute, submit_call, whole


class Client:
    async def __aenter__(self) -> Self:
        # Old poolers in transaction mode know no named prepared statements. Within a transaction they work, if no
        # other client of the pooler used the name before.
        options: dict[str, Any] = {
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: f"s_{uuid4().hex}",
        }
        url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+asyncpg://")
        self.engine = create_async_engine(url, connect_args=options if os.environ.get("POOLED") else {})
        self.session = async_sessionmaker(self.engine, class_=AsyncSession, expire_on_commit=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.engine.dispose()

    async def insert(self, given: dict[str, Any]) -> dict[str, Any]:
        job = Job(job_type=given["job_type"], payload=given["payload"], tags=given["tags"])
        async with self.session.begin() as session:
            session.add(job)
        return whole(job)

    async def defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        job = Job(job_type=given["job_type"])
        async with self.session.begin() as session:
            session.add(job)
        return whole(job)

    async def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        async with self.session.begin() as session:
            ids = (await session.scalars(insert(Job).returning(Job.id), given["jobs"])).all()
        return {"count": len(ids), "ids": ids}

    async def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        return await self._create(bound(given))

    async def every_column(self, given: dict[str, Any]) -> dict[str, Any]:
        return await self._create(every_attribute() | given | {"created_at": datetime.now(UTC)})

    async def _create(self, values: dict[str, Any]) -> dict[str, Any]:
        job = Job(**values)
        async with self.session.begin() as session:
            session.add(job)
        return {"id": job.id}

    async def dag(self, given: dict[str, Any]) -> dict[str, Any]:
        run = UUID(given["pipeline_id"])
        jobs = {name: Job(job_type=job["job_type"], pipeline_id=run) for name, job in given["jobs"].items()}
        async with self.session.begin() as session:
            session.add_all(jobs.values())
            for edge in given["dependencies"]:
                needs = {"needs": edge["needs"]} if "needs" in edge else {}
                session.add(Dependency(job=jobs[edge["job"]], upstream=jobs[edge["depends_on"]], **needs))
        return {"ids": {name: job.id for name, job in jobs.items()}}

    async def submit(self, given: dict[str, Any]) -> dict[str, Any]:
        async with self.session.begin() as session:
            rows = [(await session.execute(submit_call(given))).one() for _ in range(2)]
        return {"outcomes": [row.outcome for row in rows], "ids": [row.id for row in rows]}

    async def conflict(self, given: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            await self._create(given)
        return {}

    async def ignore_conflict(self, given: dict[str, Any]) -> dict[str, Any]:
        statement = insert(Job).values(**given).on_conflict_do_nothing().returning(Job.id)
        async with self.session.begin() as session:
            await session.execute(statement)
            created = (await session.scalars(statement)).all()
        return {"created": len(created)}

    async def rollback(self, given: dict[str, Any]) -> dict[str, Any]:
        async with self.session() as session:
            session.add(Job(**given))
            await session.flush()
            await session.rollback()
        return {}

    async def read_own(self, given: dict[str, Any]) -> dict[str, Any]:
        job_id = (await self._create(given))["id"]
        async with self.session() as session:
            job = await session.get_one(Job, job_id)
            own = select(func.count()).select_from(Job).where(Job.job_type == job.job_type, Job.state == "pending")
            return {"payload": job.payload, "count": await session.scalar(own)}

    async def foreign(self, _: dict[str, Any]) -> dict[str, Any]:
        async with self.session() as session:
            return {"found": await session.get(Job, int(os.environ["OTHERS_JOB"])) is not None}

    async def last_id(self, _: dict[str, Any]) -> dict[str, Any]:
        raise Skipped("the insert itself returns the id")


if __name__ == "__main__":
    main(Client(), "SQLAlchemy", describe)
