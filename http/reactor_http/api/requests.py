"""What callers may send: bounded as in the database, so that a refusal names the field."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic import model_validator as validates

from reactor.client.submit import NewJob
from reactor.database.jsonb import encode
from reactor.job import JobState

LARGEST_ID = 2**63 - 1
_PAYLOAD_BYTES = 1_000_000
_TAGS_BYTES = 10_000


def _whole(value: object) -> object:
    """JSON has one kind of number: 1.0 is as good as 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("contains the character NUL, which PostgreSQL can't hold")
    return value


def _name(value: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in _text(value)):
        raise ValueError("contains a control character")
    return value


def _label(value: str) -> str:
    if not 1 <= len(_name(value).encode()) <= 200 or value != value.strip():
        raise ValueError("must have 1 to 200 bytes, and no space at either end")
    return value


def _key(value: str) -> str:
    if not 1 <= len(_name(value).encode()) <= 1000:
        raise ValueError("must have 1 to 1000 bytes; leave it out for none")
    return value


def _tags(values: list[str]) -> list[str]:
    # As PostgreSQL stores them: a header, then each with its length, in units of four bytes.
    if 24 + sum((len(value.encode()) + 7) // 4 * 4 for value in values) > _TAGS_BYTES:
        raise ValueError("are too long: at most 10 kB in all")
    return values


def _payload(value: dict[str, Any]) -> dict[str, Any]:
    # Escaped it is never shorter than as PostgreSQL counts it.
    if len(encode(value)) > _PAYLOAD_BYTES and len(json.dumps(value, ensure_ascii=False).encode()) > _PAYLOAD_BYTES:
        raise ValueError("is larger than 1 MB: store the data elsewhere and put its address here")
    return value


def _job_name(value: str) -> str:
    if value.startswith("#"):
        raise ValueError("can't begin with #, which stands before the places of jobs without a name")
    return _name(value)


def _job_or_id(value: object) -> object:
    value = _whole(value)
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_ID:
        return value
    raise ValueError("must be the name of a job in this pipeline, or the id of one that exists")


Integer = Annotated[int, BeforeValidator(_whole)]
Label = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_label)]
Key = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_key)]
Text = Annotated[str, AfterValidator(_text)]
JobName = Annotated[str, Field(min_length=1, max_length=200, pattern="^[^#]"), AfterValidator(_job_name)]
JobOrId = Annotated[
    Any,
    AfterValidator(_job_or_id),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}]}
    ),
]


class Sent(BaseModel):
    """Strict: a number in quotes is a mistake that is better told than guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class JobFields(Sent):
    job_type: Label
    """Names the handler."""
    payload: Annotated[dict[str, Any], AfterValidator(_payload)] = Field(default_factory=dict)
    """The handler's argument: an object of at most 1 MB."""
    queue: Label = "default"
    priority: Integer = Field(0, ge=-1000, le=1000)
    """Smaller runs first."""
    run_after: AwareDatetime | None = None
    """Not before; null or past: now. With its zone, as in 2026-01-31T08:00:00Z."""
    max_attempts: Integer | None = Field(None, ge=1, le=2**31 - 1)
    """null: what the handler registered, else 3."""
    timeout_seconds: float | None = Field(None, ge=1e-37, le=3.4e38, allow_inf_nan=False)
    """null: what the handler registered."""
    tags: Annotated[list[Text], AfterValidator(_tags)] = Field(default_factory=list, max_length=50)
    scope: Key | None = None
    """What this job computes; one running job per scope."""
    exclusive: bool = False
    """Refuse this job while its scope has an unfinished exclusive one. Needs a scope."""
    idempotency_key: Key | None = None
    """The same request twice is one job: the second is answered with the first."""

    @field_validator("exclusive")
    @classmethod
    def _needs_a_scope(cls, value: bool, others: ValidationInfo) -> bool:
        # A scope that can't be used is missing here, and complained of by itself.
        if value and others.data.get("scope", "") is None:
            raise ValueError("needs a scope: name there what must not run twice")
        return value

    def options(self) -> dict[str, Any]:
        """The further fields of NewJob."""
        return {name: getattr(self, name) for name in JobFields.model_fields if name not in ("job_type", "payload")}


class JobSent(JobFields):
    pipeline_id: UUID | None = None
    """To add the job to a pipeline that exists; null: one of its own."""

    def new_job(self) -> NewJob:
        return NewJob(job_type=self.job_type, payload=self.payload, pipeline_id=self.pipeline_id, **self.options())


class Need(Sent):
    job: JobOrId
    """The name of another job in this pipeline, or the id of one that exists."""
    needs: Literal["completed", "finished"] = "completed"
    """finished: any end will do; completed: if it ends otherwise, this job is cancelled."""

    @validates(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return value if isinstance(value, Mapping) else {"job": value}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        own = dict(handler.resolve_ref_schema(handler(schema)))
        return {
            "title": "Need",
            "anyOf": [own["properties"]["job"]["anyOf"][0], own["properties"]["job"]["anyOf"][1], own],
        }


class PipelineJob(JobFields):
    name: JobName | None = None
    """How other jobs of this pipeline refer to it."""
    depends_on: list[Need] = Field(default_factory=list, max_length=10_000)
    """What must end first; all jobs together may name 100,000."""


class PipelineSent(Sent):
    pipeline_id: UUID | None = None
    """To add to a pipeline that exists."""
    jobs: list[PipelineJob] = Field(min_length=1, max_length=10_000)


class Reason(Sent):
    reason: Annotated[str, Field(max_length=2000)] | None = None
    """Why, for people: it is written to the jobs and to the audit."""


class Nothing(Sent):
    """No field is known."""


class DrainSent(Sent):
    on: bool


class Asked(BaseModel):
    """A query string: everything in it is text, and comes once."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class JobsAsked(Asked):
    state: JobState | None = None
    job_type: Label | None = None
    queue: Label | None = None
    scope: Key | None = None
    tag: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    pipeline_id: UUID | None = None
    limit: int = Field(50, ge=1, le=1000)
    before: int | None = Field(None, ge=1, le=LARGEST_ID)
    """Only jobs older than this one: `next` has it."""


class PipelinesAsked(Asked):
    state: Literal["running", "completed", "partial", "failed", "cancelled"] | None = None
    job_type: Label | None = None
    """Of its first job, as are scope and tag."""
    scope: Key | None = None
    tag: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    q: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    """A pipeline's id or how it begins, the id of one of its jobs, or part of its type or scope."""
    limit: int = Field(50, ge=1, le=200)
    before: int | None = Field(None, ge=1, le=LARGEST_ID)
    """Only pipelines whose first job is older than this one: `next` has it."""
