"""Describes the API in OpenAPI 3.1, from the declarations that serve it."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor import __version__
from reactor_http.api.endpoint import Call
from reactor_http.api.requests import LARGEST_ID
from reactor_http.api.responses import Problem

_REF = "#/components/schemas/{model}"
_IN_PATHS: Mapping[str, dict[str, Any]] = {
    "job_id": {"type": "integer", "format": "int64", "minimum": 1, "maximum": LARGEST_ID},
    "pipeline_id": {"type": "string", "format": "uuid"},
    "queue": {"type": "string", "minLength": 1, "maxLength": 200},
}


async def show_openapi(request: Request) -> JSONResponse:
    return JSONResponse(describe(request.app.state.calls, request.scope.get("root_path", "")))


def describe(calls: Iterable[Call], prefix: str = "") -> dict[str, Any]:
    """`prefix`: below which path the application is mounted."""
    calls = list(calls)
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(Problem, "serialization"): None}
    for call in calls:
        wanted |= {(model, "validation"): None for model in (call.body, call.query) if model}
        answered = [*call.answers.values(), *call.refuses.values()]
        wanted |= {(model, "serialization"): None for model in answered if isinstance(model, type)}
    named, definitions = models_json_schema(list(wanted), ref_template=_REF)
    schemas = definitions.get("$defs", {})
    refs = {model: ref for (model, _), ref in named.items()}
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.template, {})[call.method.lower()] = _operation(call, refs, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "reactor", "version": __version__, "summary": "Jobs and pipelines on PostgreSQL"},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(call: Call, refs: Mapping[Any, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": call.endpoint.__name__,
        "summary": call.summary,
        "parameters": [*_path_parameters(call), *_query_parameters(call, refs, schemas)],
        "responses": {str(status): _response(call, status, what, refs) for status, what in call.answers.items()},
    }
    for status in sorted(_refusals(call)):
        model = call.refuses.get(status, Problem)
        operation["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": refs[model]}},
        }
    if call.permission:
        operation["security"] = [{"token": []}, {}]
        operation["description"] = f"Needs the permission `{call.permission}`."
    if call.body:
        content = {"application/json": {"schema": refs[call.body]}}
        operation["requestBody"] = {"required": call.body_is_required, "content": content}
    return operation


def _refusals(call: Call) -> set[int]:
    """Those that follow from what a call takes, and its own."""
    found = set(call.refuses) | {503}
    found |= {400, 401, 403} if call.permission else set()
    found |= {400, 413, 415, 422} if call.body else set()
    found |= {422} if call.query else set()
    found |= {404, 422} if "{" in call.path else set()
    return found | ({409} if call.conflicts else set())


def _path_parameters(call: Call) -> list[dict[str, Any]]:
    names = [name for name in _IN_PATHS if f"{{{name}}}" in call.template]
    return [{"name": name, "in": "path", "required": True, "schema": _IN_PATHS[name]} for name in names]


def _query_parameters(call: Call, refs: Mapping[Any, Any], schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not call.query:
        return []
    schema = schemas[refs[call.query]["$ref"].rpartition("/")[2]]
    needed = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": _given(field)}
        for name, field in schema["properties"].items()
    ]


def _given(field: dict[str, Any]) -> dict[str, Any]:
    """A query string has no null: whoever means none leaves the parameter out."""
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    if field.get("default") is not None:
        rest["default"] = field["default"]
    return rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})


def _response(call: Call, status: int, what: Any, refs: Mapping[Any, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if isinstance(what, str):
        response["content"] = {what: {}}
    elif what is not None:
        response["content"] = {"application/json": {"schema": refs[what]}}
    if call.links:
        response["headers"] = {"Location": {"required": True, "schema": {"type": "string"}}}
    if 304 in call.answers:
        response["headers"] = {"ETag": {"required": True, "schema": {"type": "string"}}}
    return response
