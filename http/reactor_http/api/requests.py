"""Models of request bodies and queries, with the database's limits, so that an error can name the field."""

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
    model_validator,
)

from reactor.client.submit import NewJob
from reactor.database.jsonb import encode
from reactor.job import JobState

LARGEST_ID = 2**63 - 1
_PAYLOAD_BYTES = 1_000_000
_TAGS_BYTES = 10_000
_META_BYTES = 10_000


def _integer(value: object) -> object:
    """JSON has one type of number: 1.0 equals 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("contains the character NUL, which PostgreSQL can't store")
    return value


def _name(value: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in _text(value)):
        raise ValueError("contains a control character")
    return value


def _label(value: str) -> str:
    if not 1 <= len(_name(value).encode()) <= 200 or value != value.strip():
        raise ValueError("must have 1 to 200 bytes, without leading or trailing spaces")
    return value


def _key(value: str) -> str:
    if not 1 <= len(_name(value).encode()) <= 1000:
        raise ValueError("must have 1 to 1000 bytes; omit it for none")
    return value


def _tags(values: list[str]) -> list[str]:
    # The size in PostgreSQL: a header, then each tag with its length, padded to four bytes.
    if 24 + sum((len(value.encode()) + 7) // 4 * 4 for value in values) > _TAGS_BYTES:
        raise ValueError("are too long: at most 10 kB in total")
    return values


def _step(value: str) -> str:
    if not 1 <= len(_name(value).encode()) <= 500:
        raise ValueError("must have 1 to 500 bytes")
    return value


def _steps(values: list[str]) -> list[str]:
    if len(set(values)) < len(values):
        seen: set[str] = set()
        twice = next(value for value in values if value in seen or seen.add(value))  # type: ignore[func-returns-value]
        raise ValueError(f"name {twice[:100]!r} twice")
    return values


def _payload(value: dict[str, Any]) -> dict[str, Any]:
    # The escaped text is never shorter than what PostgreSQL counts, so most payloads are encoded only once.
    if len(encode(value)) > _PAYLOAD_BYTES and len(json.dumps(value, ensure_ascii=False).encode()) > _PAYLOAD_BYTES:
        raise ValueError("is larger than 1 MB: store the data elsewhere and send a reference to it")
    return value


def _meta(value: dict[str, Any] | None) -> dict[str, Any] | None:
    encode(value)
    if len(json.dumps(value, ensure_ascii=False).encode()) > _META_BYTES:
        raise ValueError("is larger than 10 kB: store the data elsewhere, or in the result")
    return value


def _facts(value: str) -> str:
    try:
        facts = json.loads(value)
        encode(facts)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise ValueError('must be a JSON object, such as {"region": "eu"}')
    return value


def _job_name(value: str) -> str:
    if value.startswith("#"):
        raise ValueError("can't begin with #, which is reserved for jobs without a name")
    return _name(value)


def _job_or_id(value: object) -> object:
    value = _integer(value)
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_ID:
        return value
    raise ValueError("must be the name of a job in this pipeline, or the id of an existing job")


def _described(pattern: str) -> Any:
    """For /openapi.json only: the validators have better messages than a pattern."""
    return Field(json_schema_extra={"pattern": pattern})


# Control characters, as unicodedata has them (Cc), in a notation that regular expressions of all languages share.
_CONTROL = r"\u0000-\u001f\u007f-\u009f"
LABEL_PATTERN = rf"^[^\s{_CONTROL}]([^{_CONTROL}]*[^\s{_CONTROL}])?$"

Integer = Annotated[int, BeforeValidator(_integer)]
Label = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_label), _described(LABEL_PATTERN)]
Key = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_key), _described(rf"^[^{_CONTROL}]*$")]
StepName = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_step), _described(rf"^[^{_CONTROL}]*$")]
Text = Annotated[str, AfterValidator(_text), _described(r"^[^\u0000]*$")]
JobName = Annotated[
    str,
    Field(min_length=1, max_length=200),
    AfterValidator(_job_name),
    _described(rf"^[^#{_CONTROL}][^{_CONTROL}]*$"),
]
JobOrId = Annotated[
    Any,
    AfterValidator(_job_or_id),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}]}
    ),
]


class RequestBody(BaseModel):
    """Strict: a number in quotes is an error, not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class JobFields(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"exclusive": {"const": True}}, "required": ["exclusive"]},
            "then": {"properties": {"scope": {"type": "string"}}, "required": ["scope"]},
        }
    )

    job_type: Label
    """Selects the handler. At most 200 bytes in UTF-8, without control characters and surrounding spaces."""
    payload: Annotated[dict[str, Any], AfterValidator(_payload)] = Field(default_factory=dict)
    """The handler's argument: an object of at most 1 MB."""
    queue: Label = "default"
    """Follows the rules of job_type."""
    priority: Integer = Field(0, ge=-1000, le=1000)
    """Lower values run first."""
    run_after: AwareDatetime | None = None
    """Earliest start; null or past: now. With a time zone, as in 2026-01-31T08:00:00Z."""
    max_attempts: Integer | None = Field(None, ge=1, le=2**31 - 1)
    """null: the handler's default, else 3."""
    timeout_seconds: float | None = Field(None, ge=1e-37, le=3.4e38, allow_inf_nan=False)
    """null: the handler's default."""
    tags: Annotated[list[Text], AfterValidator(_tags)] = Field(default_factory=list, max_length=50)
    """For searching; at most 10 kB in total."""
    scope: Key | None = None
    """What this job computes; at most one job per scope runs at a time. At most 1000 bytes in UTF-8, without control
    characters."""
    exclusive: bool = False
    """Reject this job while its scope has an unfinished exclusive job. Requires a scope."""
    idempotency_key: Key | None = None
    """Sending the same request twice creates one job: the second response returns the existing job. Follows the rules
    of scope."""
    lane: Key | None = None
    """On whose behalf the job runs, e.g. customer=17. Lanes take turns, and limits may apply to each. Follows the rules
    of scope, and is not *."""
    meta: Annotated[dict[str, Any] | None, AfterValidator(_meta)] = None
    """Facts about the job, to which its handler may add: an object of at most 10 kB."""
    submitted_by: Label | None = None
    """On whose request, e.g. a user's name; the name of the token is added. null: the token. Follows the rules of
    job_type."""
    delivery: Literal["at_least_once", "at_most_once"] | None = None
    """at_most_once: the handler is not called again once it has started, whatever happens. null: the handler's
    default."""
    steps: Annotated[
        list[StepName], AfterValidator(_steps), Field(max_length=100_000, json_schema_extra={"uniqueItems": True})
    ] = Field(default_factory=list)
    """The names of its steps, where they are known: they exist, and are counted, before a worker claims the job. Each
    has at most 500 bytes in UTF-8, without control characters."""

    @field_validator("exclusive")
    @classmethod
    def _requires_scope(cls, value: bool, others: ValidationInfo) -> bool:
        # An invalid scope is missing here, and reported on its own.
        if value and others.data.get("scope", "") is None:
            raise ValueError("requires a scope, which names what must not run twice")
        return value

    def options(self) -> dict[str, Any]:
        """The remaining fields of NewJob."""
        return {name: getattr(self, name) for name in JobFields.model_fields if name not in ("job_type", "payload")}


class JobRequest(JobFields):
    pipeline_id: UUID | None = None
    """An existing pipeline to add the job to; null: a new one."""

    def new_job(self, submitted_by: str | None) -> NewJob:
        options = self.options() | {"submitted_by": submitted_by}
        return NewJob(job_type=self.job_type, payload=self.payload, pipeline_id=self.pipeline_id, **options)


class DependencyRequest(RequestBody):
    job: JobOrId
    """The name of another job in this request, or the id of an existing job."""
    needs: Literal["completed", "finished"] = "completed"
    """finished: any terminal state; completed: if the other job ends differently, this one is cancelled."""

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: object) -> object:
        return value if isinstance(value, Mapping) else {"job": value}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        own = dict(handler.resolve_ref_schema(handler(schema)))
        return {
            "title": "DependencyRequest",
            "anyOf": [own["properties"]["job"]["anyOf"][0], own["properties"]["job"]["anyOf"][1], own],
        }


class PipelineJobRequest(JobFields):
    name: JobName | None = None
    """The name by which other jobs of this request refer to it: unique among them, without control characters, and not
    beginning with #."""
    depends_on: list[DependencyRequest] = Field(default_factory=list, max_length=10_000)
    """The jobs that must end first, each by the name of another job in this request or by the id of an existing job,
    without cycles. At most 100,000 in the whole request."""


class PipelineRequest(RequestBody):
    pipeline_id: UUID | None = None
    """An existing pipeline to add the jobs to; null: a new one."""
    jobs: list[PipelineJobRequest] = Field(min_length=1, max_length=10_000)


class CancelRequest(RequestBody):
    reason: Annotated[str, Field(max_length=2000)] | None = None
    """For people; stored with the jobs and in the audit."""


class EmptyBody(RequestBody):
    """An object without fields."""


class DrainRequest(RequestBody):
    on: bool


class LimitName(RequestBody):
    queue: Label | None = None
    """The queue that is limited; null: any. At least one of queue and job_type is needed."""
    job_type: Label | None = None
    """The job type that is limited; null: any."""
    lane: Key | None = None
    """null: all jobs together; *: the jobs of each lane; else: those of this lane, instead of *."""


class LimitRequest(LimitName):
    max_running: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Jobs that may run at the same time; null: any number."""
    rate: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Jobs that may start in a period; null: any number."""
    period_seconds: Annotated[float, Field(ge=0.001, le=366 * 86400)] = 1.0
    burst: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Jobs that may start at once after a pause; null: a tenth of a second's worth, at least 2, at most rate."""


class Query(BaseModel):
    """A query string: all values are text, and each name occurs once."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class JobsQuery(Query):
    state: JobState | None = None
    job_type: Label | None = None
    queue: Label | None = None
    scope: Key | None = None
    tag: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    pipeline_id: UUID | None = None
    meta: Annotated[str, AfterValidator(_facts), Field(max_length=20_000)] | None = None
    """A JSON object: facts that the job's meta has."""
    limit: int = Field(50, ge=1, le=1000)
    before: int | None = Field(None, ge=1, le=LARGEST_ID)
    """Only jobs older than this id; part of the URL in `next`."""


class LogsQuery(Query):
    attempt: int | None = Field(None, ge=0, le=2**31 - 1)
    """The number of the attempt."""
    step: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    """Only lines of this level and above."""
    limit: int = Field(200, ge=1, le=1000)
    after: int | None = Field(None, ge=0, le=LARGEST_ID)
    """The first lines after this id, 0: from the beginning. Without it: the last lines."""
    before: int | None = Field(None, ge=1, le=LARGEST_ID)
    """Only lines before this id; part of the URL in `previous`."""


class PipelinesQuery(Query):
    state: Literal["running", "completed", "partial", "failed", "cancelled"] | None = None
    job_type: Label | None = None
    """Of the pipeline's first job, like scope and tag."""
    scope: Key | None = None
    tag: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    q: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    """A pipeline's id or its beginning, the id of one of its jobs, or part of its job_type or scope."""
    limit: int = Field(50, ge=1, le=200)
    before: int | None = Field(None, ge=1, le=LARGEST_ID)
    """Only pipelines whose first job is older than this id; part of the URL in `next`."""
