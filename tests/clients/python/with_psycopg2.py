"""psycopg2, with the helpers of psycopg2.extras."""

import os
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import psycopg2
from psycopg2 import sql
from psycopg2.extras import Json, RealDictCursor, execute_values, register_uuid
from scenarios import Skipped, main

register_uuid()


class Client:
    def __enter__(self) -> Self:
        self.connection = psycopg2.connect(os.environ["DATABASE_URL"], cursor_factory=RealDictCursor)
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def insert(self, job: dict[str, Any]) -> dict[str, Any]:
        return self._one(
            "insert into reactor.jobs (job_type, payload, tags) values (%(job_type)s, %(payload)s, %(tags)s) "
            "returning *",
            job | {"payload": Json(job["payload"])},
        )

    def defaults(self, job: dict[str, Any]) -> dict[str, Any]:
        return self._one("insert into reactor.jobs (job_type) values (%(job_type)s) returning *", job)

    def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        with self.connection, self.connection.cursor() as cursor:
            rows = execute_values(
                cursor,
                "insert into reactor.jobs (job_type, payload, tags, priority) values %s returning id",
                [(job["job_type"], Json(job["payload"]), job["tags"], job["priority"]) for job in given["jobs"]],
                fetch=True,
            )
        return {"count": len(rows), "ids": [row["id"] for row in rows]}

    def bind(self, job: dict[str, Any]) -> dict[str, Any]:
        values = job | {
            "payload": Json(job["payload"]),
            "run_after": datetime.fromisoformat(job["run_after"]),
            "pipeline_id": UUID(job["pipeline_id"]),
        }
        return self._insert(values)

    def every_column(self, job: dict[str, Any]) -> dict[str, Any]:
        with self.connection, self.connection.cursor() as cursor:
            cursor.execute("select * from reactor.jobs limit 0")
            columns = [column.name for column in cursor.description if column.name != "id"]
        return self._insert(
            dict.fromkeys(columns) | job | {"payload": Json(job["payload"]), "created_at": datetime.now(UTC)}
        )

    def _insert(self, values: dict[str, Any]) -> dict[str, Any]:
        statement = sql.SQL("insert into reactor.jobs (id, {}) values (default, {}) returning id").format(
            sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(map(sql.Placeholder, values))
        )
        return self._one(statement, values)

    def dag(self, given: dict[str, Any]) -> dict[str, Any]:
        ids: dict[str, int] = {}
        with self.connection, self.connection.cursor() as cursor:
            for name, job in given["jobs"].items():
                cursor.execute(
                    "insert into reactor.jobs (job_type, pipeline_id) values (%s, %s) returning id",
                    (job["job_type"], given["pipeline_id"]),
                )
                ids[name] = cursor.fetchone()["id"]
            execute_values(
                cursor,
                "insert into reactor.dependencies (job_id, depends_on, needs) values %s returning *",
                [(ids[e["job"]], ids[e["depends_on"]], e.get("needs")) for e in given["dependencies"]],
            )
        return {"ids": ids}

    def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        rows = [
            self._one(
                "select * from reactor.submit(%(job_type)s, %(payload)s, idempotency_key => %(idempotency_key)s, "
                "tags => %(tags)s, timeout_seconds => %(timeout_seconds)s, max_attempts => %(max_attempts)s, "
                "priority => %(priority)s)",
                job | {"payload": Json(job["payload"])},
            )
            for _ in range(2)
        ]
        return {"outcomes": [row["outcome"] for row in rows], "ids": [row["id"] for row in rows]}

    def conflict(self, job: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            self._one(
                "insert into reactor.jobs (job_type, idempotency_key) values (%(job_type)s, %(idempotency_key)s) "
                "returning id",
                job,
            )
        return {}

    def ignore_conflict(self, job: dict[str, Any]) -> dict[str, Any]:
        with self.connection, self.connection.cursor() as cursor:
            for _ in range(2):
                cursor.execute(
                    "insert into reactor.jobs (job_type, idempotency_key) values (%(job_type)s, %(idempotency_key)s) "
                    "on conflict do nothing",
                    job,
                )
            return {"created": cursor.rowcount}

    def rollback(self, job: dict[str, Any]) -> dict[str, Any]:
        with self.connection.cursor() as cursor:
            cursor.execute("insert into reactor.jobs (job_type) values (%(job_type)s)", job)
            self.connection.rollback()
        return {}

    def read_own(self, job: dict[str, Any]) -> dict[str, Any]:
        created = self._one(
            "insert into reactor.jobs (job_type, payload) values (%(job_type)s, %(payload)s) returning id",
            job | {"payload": Json(job["payload"])},
        )
        found = self._one("select * from reactor.jobs where id = %(id)s", created)
        own = self._one(
            "select count(*) from reactor.jobs where job_type = %(job_type)s and state = %(state)s",
            job | {"state": "pending"},
        )
        return {"payload": found["payload"], "count": own["count"]}

    def foreign(self, _: dict[str, Any]) -> dict[str, Any]:
        with self.connection, self.connection.cursor() as cursor:
            cursor.execute("select * from reactor.jobs where id = %s", (int(os.environ["OTHERS_JOB"]),))
            return {"found": cursor.fetchone() is not None}

    def last_id(self, _: dict[str, Any]) -> dict[str, Any]:
        raise Skipped("the insert itself returns the id")

    def _one(self, statement: Any, values: dict[str, Any]) -> dict[str, Any]:
        with self.connection, self.connection.cursor() as cursor:
            cursor.execute(statement, values)
            return dict(cursor.fetchone())


def describe(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, psycopg2.Error):
        return {}
    return {"sqlstate": error.pgcode, "constraint": error.diag.constraint_name, "message": str(error)}


if __name__ == "__main__":
    main(Client(), "psycopg2-binary", describe)
