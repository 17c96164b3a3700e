"""asyncpg, with a codec for jsonb."""

import json
import os
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import asyncpg
from scenarios import Skipped, main

PRODUCER_COLUMNS = (
    "job_type, payload, tags, run_after, timeout_seconds, priority, max_attempts, queue, scope, exclusive, "
    "idempotency_key, pipeline_id"
)


class Client:
    connection: "asyncpg.Connection[asyncpg.Record]"

    async def __aenter__(self) -> Self:
        # Old poolers in transaction mode know no named prepared statements.
        size = 0 if os.environ.get("POOLED") else 100
        self.connection = await asyncpg.connect(os.environ["DATABASE_URL"], statement_cache_size=size)
        await self.connection.set_type_codec(
            "jsonb",
            encoder=lambda value: b"\x01" + json.dumps(value).encode(),
            decoder=lambda data: json.loads(data[1:]),
            schema="pg_catalog",
            format="binary",  # COPY takes no other
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.connection.close()

    async def insert(self, job: dict[str, Any]) -> dict[str, Any]:
        return await self._one(
            "insert into reactor.jobs (job_type, payload, tags) values ($1, $2, $3) returning *",
            job["job_type"],
            job["payload"],
            job["tags"],
        )

    async def defaults(self, job: dict[str, Any]) -> dict[str, Any]:
        return await self._one("insert into reactor.jobs (job_type) values ($1) returning *", job["job_type"])

    async def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        """Half of them by each of the two idioms."""
        jobs = [(job["job_type"], job["payload"], job["tags"], job["priority"]) for job in given["jobs"]]
        rows = await self.connection.fetchmany(
            "insert into reactor.jobs (job_type, payload, tags, priority) values ($1, $2, $3, $4) returning id",
            jobs[:50],
        )
        status = await self.connection.copy_records_to_table(
            "new_jobs", schema_name="reactor", columns=["job_type", "payload", "tags", "priority"], records=jobs[50:]
        )
        return {"count": len(rows) + int(status.removeprefix("COPY "))}

    async def bind(self, job: dict[str, Any]) -> dict[str, Any]:
        values = job | {
            "run_after": datetime.fromisoformat(job["run_after"]),
            "pipeline_id": UUID(job["pipeline_id"]),
        }
        return await self._one(
            f"insert into reactor.jobs ({PRODUCER_COLUMNS}) "
            "values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) returning id",
            *(values[name] for name in PRODUCER_COLUMNS.split(", ")),
        )

    async def every_column(self, job: dict[str, Any]) -> dict[str, Any]:
        columns = await self._columns()
        values = dict.fromkeys(columns) | job | {"created_at": datetime.now(UTC)}
        places = ["default" if name == "id" else f"${n}" for n, name in enumerate(columns)]
        return await self._one(
            f"insert into reactor.jobs ({', '.join(columns)}) values ({', '.join(places)}) returning id",
            *(values[name] for name in columns if name != "id"),
        )

    async def _columns(self) -> list[str]:
        """`id` is the first."""
        statement = await self.connection.fetch(
            "select column_name from information_schema.columns "
            "where table_schema = 'reactor' and table_name = 'jobs' order by ordinal_position"
        )
        return [row["column_name"] for row in statement]

    async def dag(self, given: dict[str, Any]) -> dict[str, Any]:
        async with self.connection.transaction():
            ids = {
                name: await self.connection.fetchval(
                    "insert into reactor.jobs (job_type, pipeline_id) values ($1, $2) returning id",
                    job["job_type"],
                    given["pipeline_id"],
                )
                for name, job in given["jobs"].items()
            }
            await self.connection.executemany(
                "insert into reactor.dependencies (job_id, depends_on, needs) values ($1, $2, $3)",
                [(ids[e["job"]], ids[e["depends_on"]], e.get("needs")) for e in given["dependencies"]],
            )
        return {"ids": ids}

    async def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        rows = [
            await self._one(
                "select * from reactor.submit($1, $2, idempotency_key => $3, tags => $4, timeout_seconds => $5, "
                "max_attempts => $6, priority => $7)",
                job["job_type"],
                job["payload"],
                job["idempotency_key"],
                job["tags"],
                job["timeout_seconds"],
                job["max_attempts"],
                job["priority"],
            )
            for _ in range(2)
        ]
        return {"outcomes": [row["outcome"] for row in rows], "ids": [row["id"] for row in rows]}

    async def conflict(self, job: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            await self.connection.execute(
                "insert into reactor.jobs (job_type, idempotency_key) values ($1, $2)",
                job["job_type"],
                job["idempotency_key"],
            )
        return {}

    async def ignore_conflict(self, job: dict[str, Any]) -> dict[str, Any]:
        statement = "insert into reactor.jobs (job_type, idempotency_key) values ($1, $2) on conflict do nothing"
        await self.connection.execute(statement, job["job_type"], job["idempotency_key"])
        status = await self.connection.execute(statement, job["job_type"], job["idempotency_key"])
        return {"created": int(status.removeprefix("INSERT 0 "))}

    async def rollback(self, job: dict[str, Any]) -> dict[str, Any]:
        transaction = self.connection.transaction()
        await transaction.start()
        await self._one("insert into reactor.jobs (job_type) values ($1) returning id", job["job_type"])
        await transaction.rollback()
        return {}

    async def read_own(self, job: dict[str, Any]) -> dict[str, Any]:
        job_id = await self.connection.fetchval(
            "insert into reactor.jobs (job_type, payload) values ($1, $2) returning id", job["job_type"], job["payload"]
        )
        found = await self._one("select * from reactor.jobs where id = $1", job_id)
        count = await self.connection.fetchval(
            "select count(*) from reactor.jobs where job_type = $1 and state = $2", job["job_type"], "pending"
        )
        return {"payload": found["payload"], "count": count}

    async def foreign(self, _: dict[str, Any]) -> dict[str, Any]:
        row = await self.connection.fetchrow("select * from reactor.jobs where id = $1", int(os.environ["OTHERS_JOB"]))
        return {"found": row is not None}

    async def last_id(self, _: dict[str, Any]) -> dict[str, Any]:
        raise Skipped("the insert itself returns the id")

    async def _one(self, statement: str, *values: object) -> dict[str, Any]:
        row = await self.connection.fetchrow(statement, *values)
        assert row is not None
        return dict(row)


def describe(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, asyncpg.PostgresError):
        return {}
    return {"sqlstate": error.sqlstate, "constraint": error.constraint_name, "message": str(error)}


if __name__ == "__main__":
    main(Client(), "asyncpg", describe)
