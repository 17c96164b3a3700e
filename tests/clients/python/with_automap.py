"""SQLAlchemy automap: classes that are made from the tables as the database describes them."""

import os
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

from scenarios import Skipped, main
from sqlalchemy import create_engine, func, inspect, null, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.automap import automap_base
from sqlalchemy.orm import Session
from with_sqlalchemy import bound, describe, submit_call, whole


class Client:
    def __enter__(self) -> Self:
        # Old poolers in transaction mode know no named prepared statements.
        options: dict[str, Any] = {"prepare_threshold": None} if os.environ.get("POOLED") else {}
        url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")
        self.engine = create_engine(url, connect_args=options)
        base: Any = automap_base()
        base.prepare(
            self.engine,
            schema="reactor",
            reflection_options={"only": ["jobs", "dependencies"]},
            # Both columns of a dependency refer to jobs.
            name_for_scalar_relationship=lambda _, __, ___, key: f"{key.column_keys[0].removesuffix('_id')}_row",
            name_for_collection_relationship=lambda _, __, ___, key: f"rows_by_{key.column_keys[0]}",
        )
        self.job, self.dependency = base.classes.jobs, base.classes.dependencies
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.dispose()

    def insert(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._create(given)

    def defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._create(given)

    def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            session.bulk_insert_mappings(self.job, given["jobs"])
            session.commit()
        return {"count": len(given["jobs"])}

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"id": self._create(bound(given))["id"]}

    def every_column(self, given: dict[str, Any]) -> dict[str, Any]:
        names = inspect(self.job).columns.keys()
        # None is JSON's null in a column of JSON, and left out where the database has a default; null() is written.
        empty = {name: None if name == "result" else null() for name in names if name != "id"}
        return {"id": self._create(empty | given | {"created_at": datetime.now(UTC)})["id"]}

    def _create(self, values: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            job = self.job(**values)
            session.add(job)
            session.commit()
            return whole(job)

    def dag(self, given: dict[str, Any]) -> dict[str, Any]:
        run = UUID(given["pipeline_id"])
        with Session(self.engine) as session:
            jobs = {name: self.job(job_type=job["job_type"], pipeline_id=run) for name, job in given["jobs"].items()}
            session.add_all(jobs.values())
            session.flush()
            for edge in given["dependencies"]:
                needs = {"needs": edge["needs"]} if "needs" in edge else {}
                job_id, depends_on = jobs[edge["job"]].id, jobs[edge["depends_on"]].id
                session.add(self.dependency(job_id=job_id, depends_on=depends_on, **needs))
            session.commit()
            return {"ids": {name: job.id for name, job in jobs.items()}}

    def submit(self, given: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            rows = [session.execute(submit_call(given)).one() for _ in range(2)]
            session.commit()
        return {"outcomes": [row.outcome for row in rows], "ids": [row.id for row in rows]}

    def conflict(self, given: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            self._create(given)
        return {}

    def ignore_conflict(self, given: dict[str, Any]) -> dict[str, Any]:
        statement = insert(self.job).values(**given).on_conflict_do_nothing().returning(self.job.id)
        with Session(self.engine) as session:
            session.execute(statement)
            created = session.scalars(statement).all()
            session.commit()
        return {"created": len(created)}

    def rollback(self, given: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            session.add(self.job(**given))
            session.flush()
            session.rollback()
        return {}

    def read_own(self, given: dict[str, Any]) -> dict[str, Any]:
        job_id = self._create(given)["id"]
        with Session(self.engine) as session:
            job = session.get_one(self.job, job_id)
            own = select(func.count()).select_from(self.job).filter_by(job_type=job.job_type, state="pending")
            return {"payload": job.payload, "count": session.scalar(own)}

    def foreign(self, _: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            return {"found": session.get(self.job, int(os.environ["OTHERS_JOB"])) is not None}

    def last_id(self, _: dict[str, Any]) -> dict[str, Any]:
        raise Skipped("the insert itself returns the id")


if __name__ == "__main__":
    main(Client(), "SQLAlchemy", describe)
