"""psycopg 3, synchronous."""

import os
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from scenarios import Skipped, main


class Client:
    connection: psycopg.Connection[DictRow]

    def __enter__(self) -> Self:
        self.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, row_factory=dict_row)
        if os.environ.get("POOLED"):
            # Old poolers in transaction mode know no named prepared statements.
            self.connection.prepare_threshold = None
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def insert(self, job: dict[str, Any]) -> dict[str, Any]:
        return self._one(
            "insert into reactor.jobs (job_type, payload, tags) values (%s, %s, %s) returning *",
            job["job_type"],
            Jsonb(job["payload"]),
            job["tags"],
        )

    def defaults(self, job: dict[str, Any]) -> dict[str, Any]:
        return self._one("insert into reactor.jobs (job_type) values (%s) returning *", job["job_type"])

    def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        """Half of them by each of the two idioms."""
        jobs = [job | {"payload": Jsonb(job["payload"])} for job in given["jobs"]]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(
                "insert into reactor.jobs (job_type, payload, tags, priority) "
                "values (%(job_type)s, %(payload)s, %(tags)s, %(priority)s) returning id",
                jobs[:50],
                returning=True,
            )
            ids = [row["id"] for results in cursor.results() for row in results]
            with cursor.copy("copy reactor.new_jobs (job_type, payload, tags, priority) from stdin") as copy:
                for job in jobs[50:]:
                    copy.write_row([job["job_type"], job["payload"], job["tags"], job["priority"]])
            return {"count": len(ids) + cursor.rowcount}

    def bind(self, job: dict[str, Any]) -> dict[str, Any]:
        values = job | {
            "payload": Jsonb(job["payload"]),
            "run_after": datetime.fromisoformat(job["run_after"]),
            "pipeline_id": UUID(job["pipeline_id"]),
        }
        return self._insert(values)

    def every_column(self, job: dict[str, Any]) -> dict[str, Any]:
        cursor = self.connection.execute("select * from reactor.jobs limit 0")
        assert cursor.description
        columns = [column.name for column in cursor.description if column.name != "id"]
        return self._insert(
            dict.fromkeys(columns) | job | {"payload": Jsonb(job["payload"]), "created_at": datetime.now(UTC)}
        )

    def _insert(self, values: dict[str, Any]) -> dict[str, Any]:
        statement = sql.SQL("insert into reactor.jobs (id, {}) values (default, {}) returning id").format(
            sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(map(sql.Placeholder, values))
        )
        row = self.connection.execute(statement, values).fetchone()
        assert row is not None
        return row

    def dag(self, given: dict[str, Any]) -> dict[str, Any]:
        with self.connection.transaction(), self.connection.cursor() as cursor:
            ids = {
                name: self._one(
                    "insert into reactor.jobs (job_type, pipeline_id) values (%s, %s) returning id",
                    job["job_type"],
                    UUID(given["pipeline_id"]),
                )["id"]
                for name, job in given["jobs"].items()
            }
            cursor.executemany(
                "insert into reactor.dependencies (job_id, depends_on, needs) values (%s, %s, %s) returning *",
                [(ids[e["job"]], ids[e["depends_on"]], e.get("needs")) for e in given["dependencies"]],
            )
        return {"ids": ids}

    def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        rows = [
            self._one(
                "select * from reactor.submit(%s, %s, idempotency_key => %s, tags => %s, timeout_seconds => %s, "
                "max_attempts => %s, priority => %s)",
                job["job_type"],
                Jsonb(job["payload"]),
                job["idempotency_key"],
                job["tags"],
                job["timeout_seconds"],
                job["max_attempts"],
                job["priority"],
            )
            for _ in range(2)
        ]
        return {"outcomes": [row["outcome"] for row in rows], "ids": [row["id"] for row in rows]}

    def conflict(self, job: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            self._one(
                "insert into reactor.jobs (job_type, idempotency_key) values (%s, %s) returning id", *job.values()
            )
        return {}

    def ignore_conflict(self, job: dict[str, Any]) -> dict[str, Any]:
        statement = (
            "insert into reactor.jobs (job_type, idempotency_key) values (%(job_type)s, %(idempotency_key)s) "
            "on conflict do nothing"
        )
        self.connection.execute(statement, job)
        return {"created": self.connection.execute(statement, job).rowcount}

    def rollback(self, job: dict[str, Any]) -> dict[str, Any]:
        with self.connection.transaction(force_rollback=True):
            self.defaults(job)
        return {}

    def read_own(self, job: dict[str, Any]) -> dict[str, Any]:
        created = self._one(
            "insert into reactor.jobs (job_type, payload) values (%s, %s) returning id",
            job["job_type"],
            Jsonb(job["payload"]),
        )
        found = self._one("select * from reactor.jobs where id = %s", created["id"])
        own = self._one(
            "select count(*) from reactor.jobs where job_type = %s and state = %s", job["job_type"], "pending"
        )
        return {"payload": found["payload"], "count": own["count"]}

    def foreign(self, _: dict[str, Any]) -> dict[str, Any]:
        cursor = self.connection.execute("select * from reactor.jobs where id = %s", [int(os.environ["OTHERS_JOB"])])
        return {"found": cursor.fetchone() is not None}

    def last_id(self, _: dict[str, Any]) -> dict[str, Any]:
        raise Skipped("the insert itself returns the id")

    def _one(self, statement: str, *values: object) -> dict[str, Any]:
        row = self.connection.execute(statement.encode(), values).fetchone()
        assert row is not None
        return row


def describe(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, psycopg.Error):
        return {}
    return {"sqlstate": error.sqlstate, "constraint": error.diag.constraint_name, "message": str(error)}


if __name__ == "__main__":
    main(Client(), "psycopg", describe)
