"""SQLAlchemy with mapped classes, on psycopg 3."""

import os
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

from scenarios import Skipped, main
from sqlalchemy import BigInteger, Text, Uuid, bindparam, column, create_engine, func, inspect, null, select, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy_models import Dependency, Job


class Client:
    def __enter__(self) -> Self:
        # Old poolers in transaction mode know no named prepared statements.
        options: dict[str, Any] = {"prepare_threshold": None} if os.environ.get("POOLED") else {}
        url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")
        self.engine = create_engine(url, connect_args=options)
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.dispose()

    def insert(self, given: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            job = Job(job_type=given["job_type"], payload=given["payload"], tags=given["tags"])
            session.add(job)
            session.commit()
            return whole(job)

    def defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            job = Job(job_type=given["job_type"])
            session.add(job)
            session.commit()
            return whole(job)

    def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        jobs = [Job(**job) for job in given["jobs"]]
        with Session(self.engine) as session:
            session.add_all(jobs)
            session.commit()
            ids = [job.id for job in jobs]
        return {"count": len(ids), "ids": ids}

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._create(bound(given))

    def every_column(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._create(every_attribute() | given | {"created_at": datetime.now(UTC)})

    def _create(self, values: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            job = Job(**values)
            session.add(job)
            session.commit()
            return {"id": job.id}

    def dag(self, given: dict[str, Any]) -> dict[str, Any]:
        run = UUID(given["pipeline_id"])
        with Session(self.engine) as session:
            jobs = {name: Job(job_type=job["job_type"], pipeline_id=run) for name, job in given["jobs"].items()}
            session.add_all(jobs.values())
            for edge in given["dependencies"]:
                needs = {"needs": edge["needs"]} if "needs" in edge else {}
                session.add(Dependency(job=jobs[edge["job"]], upstream=jobs[edge["depends_on"]], **needs))
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
        statement = insert(Job).values(**given).on_conflict_do_nothing().returning(Job.id)
        with Session(self.engine) as session:
            session.execute(statement)
            created = session.scalars(statement).all()
            session.commit()
        return {"created": len(created)}

    def rollback(self, given: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            session.add(Job(**given))
            session.flush()
            session.rollback()
        return {}

    def read_own(self, given: dict[str, Any]) -> dict[str, Any]:
        job_id = self._create(given)["id"]
        with Session(self.engine) as session:
            job = session.get_one(Job, job_id)
            own = select(func.count()).select_from(Job).where(Job.job_type == job.job_type, Job.state == "pending")
            return {"payload": job.payload, "count": session.scalar(own)}

    def foreign(self, _: dict[str, Any]) -> dict[str, Any]:
        with Session(self.engine) as session:
            return {"found": session.get(Job, int(os.environ["OTHERS_JOB"])) is not None}

    def last_id(self, _: dict[str, Any]) -> dict[str, Any]:
        raise Skipped("the insert itself returns the id")


def whole(job: Any) -> dict[str, Any]:
    names = ("id", "pipeline_id", "state", "queue", "tags", "payload", "created_at")
    return {name: getattr(job, name) for name in names}


def bound(given: dict[str, Any]) -> dict[str, Any]:
    return given | {
        "run_after": datetime.fromisoformat(given["run_after"]),
        "pipeline_id": UUID(given["pipeline_id"]),
    }


def every_attribute() -> dict[str, Any]:
    """SQLAlchemy leaves out None where the database has a default; null() it writes."""
    return {name: null() for name in inspect(Job).columns.keys() if name != "id"}  # noqa: SIM118 (not a dict)


def submit_call(given: dict[str, Any]) -> Any:
    """`func` has no named arguments; literal SQL has them, and types that can be stated."""
    return (
        text(
            "select id, pipeline_id, outcome from reactor.submit(:job_type, :payload, "
            "idempotency_key => :idempotency_key, tags => :tags, timeout_seconds => :timeout_seconds, "
            "max_attempts => :max_attempts, priority => :priority)"
        )
        .bindparams(bindparam("payload", type_=JSONB), bindparam("tags", type_=ARRAY(Text)))
        .bindparams(**given)
        .columns(column("id", BigInteger), column("pipeline_id", Uuid), column("outcome", Text))
    )


def describe(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, DBAPIError):
        return {}
    original: Any = error.orig
    # psycopg's error has `diag`. asyncpg's is the cause of the one that SQLAlchemy makes of it.
    detail = getattr(original, "diag", original.__cause__)
    return {"sqlstate": original.sqlstate, "constraint": detail.constraint_name, "message": str(error)}


if __name__ == "__main__":
    main(Client(), "SQLAlchemy", describe)
