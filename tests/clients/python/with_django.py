"""Django, with models that it does not manage."""

import os
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import django
from django.conf import settings
from scenarios import Skipped, main

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "PASSWORD": os.environ["PGPASSWORD"],
            "NAME": os.environ["PGDATABASE"],
            # A cursor on the server would have to stay on one session of the pooler.
            "DISABLE_SERVER_SIDE_CURSORS": bool(os.environ.get("POOLED")),
        }
    },
    USE_TZ=True,
)
django.setup()

from django.db import DatabaseError, connection, transaction  # noqa: E402 (needs the settings)
from django.utils import timezone  # noqa: E402
from django_models import Dependency, Job  # noqa: E402
from psycopg.types.json import Jsonb  # noqa: E402


class Client:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        connection.close()

    def insert(self, given: dict[str, Any]) -> dict[str, Any]:
        job = Job.objects.create(job_type=given["job_type"], payload=given["payload"], tags=given["tags"])
        return whole(job)

    def defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        job = Job(job_type=given["job_type"])
        job.save()
        return whole(job)

    def batch(self, given: dict[str, Any]) -> dict[str, Any]:
        jobs = Job.objects.bulk_create(Job(**job) for job in given["jobs"])
        return {"count": len(jobs), "ids": [job.id for job in jobs]}

    def bind(self, given: dict[str, Any]) -> dict[str, Any]:
        job = Job.objects.create(
            **given
            | {"run_after": datetime.fromisoformat(given["run_after"]), "pipeline_id": UUID(given["pipeline_id"])}
        )
        return {"id": job.id}

    def every_column(self, given: dict[str, Any]) -> dict[str, Any]:
        empty = {field.attname: None for field in Job._meta.fields if field.attname != "id"}
        return {"id": Job.objects.create(**empty | given | {"created_at": timezone.now()}).id}

    def dag(self, given: dict[str, Any]) -> dict[str, Any]:
        run = UUID(given["pipeline_id"])
        with transaction.atomic():
            jobs = {
                name: Job.objects.create(job_type=job["job_type"], pipeline_id=run)
                for name, job in given["jobs"].items()
            }
            for edge in given["dependencies"]:
                needs = {"needs": edge["needs"]} if "needs" in edge else {}
                Dependency.objects.create(job=jobs[edge["job"]], upstream=jobs[edge["depends_on"]], **needs)
        return {"ids": {name: job.id for name, job in jobs.items()}}

    def submit(self, given: dict[str, Any]) -> dict[str, Any]:
        with connection.cursor() as cursor:
            rows = []
            for _ in range(2):
                cursor.execute(
                    "select id, outcome from reactor.submit(%(job_type)s, %(payload)s, "
                    "idempotency_key => %(idempotency_key)s, tags => %(tags)s, timeout_seconds => %(timeout_seconds)s, "
                    "max_attempts => %(max_attempts)s, priority => %(priority)s)",
                    given | {"payload": Jsonb(given["payload"])},
                )
                rows.append(cursor.fetchone())
        return {"outcomes": [outcome for _, outcome in rows], "ids": [job_id for job_id, _ in rows]}

    def conflict(self, given: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            Job.objects.create(**given)
        return {}

    def ignore_conflict(self, given: dict[str, Any]) -> dict[str, Any]:
        Job.objects.bulk_create([Job(**given)], ignore_conflicts=True)
        before = Job.objects.filter(**given).count()
        Job.objects.bulk_create([Job(**given)], ignore_conflicts=True)
        return {"created": Job.objects.filter(**given).count() - before}

    def rollback(self, given: dict[str, Any]) -> dict[str, Any]:
        with transaction.atomic():
            Job.objects.create(**given)
            transaction.set_rollback(True)
        return {}

    def read_own(self, given: dict[str, Any]) -> dict[str, Any]:
        created, is_new = Job.objects.get_or_create(job_type=given["job_type"], defaults={"payload": given["payload"]})
        again, is_new_again = Job.objects.get_or_create(job_type=given["job_type"])
        assert (is_new, is_new_again, again) == (True, False, created)
        found = Job.objects.filter(id=created.id).first()
        assert found is not None
        return {
            "payload": found.payload,
            "count": Job.objects.filter(job_type=given["job_type"], state="pending").count(),
        }

    def foreign(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"found": Job.objects.filter(id=int(os.environ["OTHERS_JOB"])).first() is not None}

    def last_id(self, _: dict[str, Any]) -> dict[str, Any]:
        raise Skipped("the insert itself returns the id")


def whole(job: Job) -> dict[str, Any]:
    names = ("id", "pipeline_id", "state", "queue", "tags", "payload", "created_at")
    return {name: getattr(job, name) for name in names}


def describe(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, DatabaseError):
        return {}
    cause: Any = error.__cause__
    return {"sqlstate": cause.sqlstate, "constraint": cause.diag.constraint_name, "message": str(error)}


if __name__ == "__main__":
    main(Client(), "Django", describe)
