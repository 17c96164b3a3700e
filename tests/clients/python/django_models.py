"""reactor's tables for Django: what a producer writes, and what it may want to read."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class Job(models.Model):
    id = models.BigAutoField(primary_key=True)
    job_type = models.TextField()
    # db_default: the database has a default, which applies unless the field is set.
    payload = models.JSONField(db_default={})
    pipeline_id = models.UUIDField(db_default=models.Func(function="gen_random_uuid"))
    queue = models.TextField(db_default="default")
    priority = models.SmallIntegerField(db_default=0)
    run_after = models.DateTimeField(null=True)
    max_attempts = models.IntegerField(null=True)
    timeout_seconds = models.FloatField(null=True)
    tags = ArrayField(models.TextField(), db_default=[])
    scope = models.TextField(null=True)
    exclusive = models.BooleanField(db_default=False)
    idempotency_key = models.TextField(null=True)

    # Written by the engine.
    state = models.TextField(db_default="pending", editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    created_by = models.TextField(db_default="", editable=False)
    finished_at = models.DateTimeField(null=True, editable=False)
    progress = models.FloatField(null=True, editable=False)
    result = models.JSONField(null=True, editable=False)
    error = models.TextField(null=True, editable=False)

    class Meta:
        app_label = "reactor"
        managed = False
        db_table = '"reactor"."jobs"'


class Dependency(models.Model):
    """`job` waits for `upstream`."""

    pk = models.CompositePrimaryKey("job_id", "upstream_id")
    job = models.ForeignKey(Job, models.DO_NOTHING, related_name="dependencies")
    upstream = models.ForeignKey(Job, models.DO_NOTHING, related_name="dependents", db_column="depends_on")
    needs = models.TextField(db_default="completed")

    class Meta:
        app_label = "reactor"
        managed = False
        db_table = '"reactor"."dependencies"'
