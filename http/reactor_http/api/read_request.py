"""Parses the body, query and path of a request, and names every invalid field and what is wrong with it."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from reactor_http.api.requests import LARGEST_ID, Label
from reactor_http.problem import Problem

MAX_BYTES = 8 * 1024 * 1024
# A body that is too large is read and discarded up to this size: many clients send all of it before they read.
_DISCARDED_BYTES = 4 * MAX_BYTES
_MAX_ERRORS = 100
_RULES = "/openapi.json describes every field."
_label = TypeAdapter[str](Label)

M = TypeVar("M", bound=BaseModel)


async def read_body(
    request: Request, model: type[M], *, required: bool = True, check: Callable[[bytes], object] = bool
) -> M:
    """The validated JSON body. If it is not required, an empty body counts as {}. `check` runs before validation."""
    body = await _read_bytes(request)
    if not body and not required:
        return model.model_validate({})
    _check_type(request)
    check(body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        failure = error
    _check_error_count(failure)
    [first, *_] = failure.errors(include_url=False, include_input=False)
    if first["type"] == "json_invalid":
        detail = first["msg"].removeprefix("Invalid JSON: ")
        raise Problem(400, f"The body is not valid JSON: {detail}.", "Send one JSON object, in UTF-8.")
    raise _invalid(failure)


def read_query(request: Request, model: type[M]) -> M:
    given = request.query_params
    # Counted in one pass: searching all parameters for each one took a minute for a URL of the allowed length.
    counts = Counter(name for name, _ in given.multi_items())
    if repeated := sorted(name for name, n in counts.items() if n > 1)[:_MAX_ERRORS]:
        raise invalid(dict.fromkeys(repeated, "is given more than once"))
    try:
        return model.model_validate_strings(dict(given), strict=False)
    except ValidationError as error:
        raise _invalid(error) from None


def job_id(request: Request) -> int:
    text = request.path_params["job_id"]
    if not re.fullmatch("[0-9]{1,19}", text) or not 1 <= int(text) <= LARGEST_ID:
        raise invalid({"job_id": "must be a job id: an integer from 1"})
    return int(text)


def pipeline_id(request: Request) -> UUID:
    try:
        return UUID(request.path_params["pipeline_id"])
    except ValueError:
        raise invalid({"pipeline_id": "must be a pipeline id: a UUID"}) from None


def queue_name(request: Request) -> str:
    return _name(request, "queue")


def job_type_name(request: Request) -> str:
    return _name(request, "job_type")


def _name(request: Request, parameter: str) -> str:
    try:
        return _label.validate_python(request.path_params[parameter])
    except ValidationError as error:
        raise invalid({parameter: _field_message(error.errors()[0]["msg"])}) from None


def invalid(errors: Mapping[str, str]) -> Problem:
    """`errors`: messages by field."""
    [(field, message), *more] = errors.items()
    detail = f"{field or 'The body'} {message}." if not more else f"{len(errors)} fields are invalid."
    listed = [{"field": field, "message": message} for field, message in errors.items()]
    return Problem(422, detail, _RULES, errors=listed)


async def _read_bytes(request: Request) -> bytes:
    """Counts the bytes as they arrive, since Content-Length need not be true."""
    too_large = Problem(413, "The body is larger than 8 MiB.", "Send fewer jobs per request.")
    declared = request.headers.get("content-length", "")
    expected = int(declared[:19]) if declared.isascii() and declared.isdigit() else 0
    # A client that sends "Expect: 100-continue" reads the response before it sends the body.
    if expected > (MAX_BYTES if "expect" in request.headers else _DISCARDED_BYTES):
        raise too_large
    size, body = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size > _DISCARDED_BYTES:
            raise too_large
        if size <= MAX_BYTES:
            body += chunk
    if size > MAX_BYTES:
        raise too_large
    return bytes(body)


def _check_type(request: Request) -> None:
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = dict(part.strip().partition("=")[::2] for part in parameters.split(";")).get("charset", "utf-8")
    if kind.strip() != "application/json" or charset.strip('"') not in ("utf-8", "utf8", "us-ascii"):
        given = f"is {kind.strip()[:100]}" if kind.strip() else "is missing"
        raise Problem(
            415,
            f"The body's Content-Type {given}." if kind.strip() != "application/json" else "The body is not in UTF-8.",
            "Send JSON with `Content-Type: application/json`.",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "The body is compressed.", "Send it uncompressed, without a Content-Encoding header.")


def _invalid(error: ValidationError) -> Problem:
    _check_error_count(error)
    errors = error.errors(include_url=False, include_input=False)
    return invalid({_path(one["loc"]): _field_message(one["msg"]) for one in errors[:_MAX_ERRORS]})


def _check_error_count(error: ValidationError) -> None:
    """Pydantic returns all errors at once, and a body has room for a million."""
    if error.error_count() > 100 * _MAX_ERRORS:
        raise Problem(422, f"{error.error_count():,} fields are invalid.", _RULES)


def _path(where: tuple[int | str, ...]) -> str:
    """For example jobs[3].priority."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).removeprefix(".")


def _field_message(message: str) -> str:
    """As the continuation of the field's name: `priority should be less than 1000`."""
    known: dict[str, Any] = {"Field required": "is required", "Extra inputs are not permitted": "is not a known field"}
    message = known.get(message, message).removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]
