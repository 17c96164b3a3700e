"""Reads what a request says, and refuses what can't be used: which field, and why."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request

from reactor_http.api.requests import LARGEST_ID, Label
from reactor_http.problem import Problem

MOST_BYTES = 8 * 1024 * 1024
# Of a body that is too large so much is read and dropped: many clients see no answer before they have sent everything.
_DROPPED_BYTES = 4 * MOST_BYTES
_MOST_ERRORS = 100
_RULES = "/openapi.json has the rules for every field."
_label = TypeAdapter[str](Label)

M = TypeVar("M", bound=BaseModel)


async def read_body(
    request: Request, model: type[M], *, required: bool = True, check: Callable[[bytes], object] = bool
) -> M:
    """The JSON that was sent. Not required: an empty body counts as {}. `check`: may refuse it before it is read."""
    body = await _read(request)
    if not body and not required:
        return model.model_validate({})
    _check_type(request)
    check(body)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        wrong = error
    _check_count(wrong)
    [first, *_] = wrong.errors(include_url=False, include_input=False)
    if first["type"] == "json_invalid":
        detail = first["msg"].removeprefix("Invalid JSON: ")
        raise Problem(400, f"The body is not JSON: {detail}.", "Send one JSON object, in UTF-8.")
    raise _unusable(wrong)


def read_query(request: Request, model: type[M]) -> M:
    given = request.query_params
    # Counted in one go: to look for each of them among all others took a minute for what fits into an address.
    counted = Counter(name for name, _ in given.multi_items())
    if twice := sorted(name for name, n in counted.items() if n > 1)[:_MOST_ERRORS]:
        raise unusable(dict.fromkeys(twice, "is given twice"))
    try:
        return model.model_validate_strings(dict(given), strict=False)
    except ValidationError as error:
        raise _unusable(error) from None


def job_id(request: Request) -> int:
    text = request.path_params["job_id"]
    if not re.fullmatch("[0-9]{1,19}", text) or not 1 <= int(text) <= LARGEST_ID:
        raise unusable({"job_id": "must be a job's id: a whole number, from 1"})
    return int(text)


def pipeline_id(request: Request) -> UUID:
    try:
        return UUID(request.path_params["pipeline_id"])
    except ValueError:
        raise unusable({"pipeline_id": "must be a pipeline's id: a UUID"}) from None


def queue_name(request: Request) -> str:
    try:
        return _label.validate_python(request.path_params["queue"])
    except ValidationError as error:
        raise unusable({"queue": _worded(error.errors()[0]["msg"])}) from None


def unusable(errors: Mapping[str, str]) -> Problem:
    """`errors`: what is wrong with which field."""
    [(field, message), *more] = errors.items()
    detail = f"{field or 'It'} {message}." if not more else f"{len(errors)} fields can't be used."
    listed = [{"field": field, "message": message} for field, message in errors.items()]
    return Problem(422, detail, _RULES, errors=listed)


async def _read(request: Request) -> bytes:
    """In pieces, counted: what a request says of its own length need not be so."""
    too_large = Problem(413, "The body is larger than 8 MiB.", "Send fewer jobs at once.")
    said = request.headers.get("content-length", "")
    expected = int(said[:19]) if said.isascii() and said.isdigit() else 0
    # Who asks before it sends ("Expect: 100-continue") is told at once.
    if expected > (MOST_BYTES if "expect" in request.headers else _DROPPED_BYTES):
        raise too_large
    size, body = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size > _DROPPED_BYTES:
            raise too_large
        if size <= MOST_BYTES:
            body += chunk
    if size > MOST_BYTES:
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
        raise Problem(415, "The body is compressed.", "Send it as it is, without a Content-Encoding.")


def _unusable(error: ValidationError) -> Problem:
    _check_count(error)
    errors = error.errors(include_url=False, include_input=False)
    return unusable({_path(one["loc"]): _worded(one["msg"]) for one in errors[:_MOST_ERRORS]})


def _check_count(error: ValidationError) -> None:
    """They can only be had all at once, and a body has room for a million."""
    if error.error_count() > 100 * _MOST_ERRORS:
        raise Problem(422, f"{error.error_count():,} fields can't be used.", _RULES)


def _path(where: tuple[int | str, ...]) -> str:
    """jobs[3].priority"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).removeprefix(".")


def _worded(message: str) -> str:
    """After the field's name: `priority should be less than 1000`."""
    known: dict[str, Any] = {"Field required": "is required", "Extra inputs are not permitted": "is not known here"}
    message = known.get(message, message).removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]
