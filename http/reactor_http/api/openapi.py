"""Generates /openapi.json (OpenAPI 3.1) from the endpoint declarations."""

import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor import __version__
from reactor_http.api.endpoint import Endpoint
from reactor_http.api.requests import LABEL_PATTERN, LARGEST_ID
from reactor_http.api.responses import Problem

_REF = "#/components/schemas/{model}"
_PATH_PARAMETERS: Mapping[str, dict[str, Any]] = {
    "job_id": {"type": "integer", "format": "int64", "minimum": 1, "maximum": LARGEST_ID},
    "pipeline_id": {"type": "string", "format": "uuid"},
    "queue": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": LABEL_PATTERN},
    "job_type": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": LABEL_PATTERN},
}


async def show_openapi(request: Request) -> JSONResponse:
    return JSONResponse(describe(request.app.state.endpoints, request.scope.get("root_path", "")))


def describe(endpoints: Iterable[Endpoint], prefix: str = "") -> dict[str, Any]:
    """`prefix`: the path that the application is mounted at."""
    endpoints = list(endpoints)
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(Problem, "serialization"): None}
    for endpoint in endpoints:
        models |= {(model, "validation"): None for model in (endpoint.body, endpoint.query) if model}
        returned = [*endpoint.responses.values(), *endpoint.errors.values()]
        models |= {(model, "serialization"): None for model in returned if isinstance(model, type)}
    named, definitions = models_json_schema(list(models), ref_template=_REF)
    schemas = definitions.get("$defs", {})
    refs = {model: ref for (model, _), ref in named.items()}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.template, {})[endpoint.method.lower()] = _operation(endpoint, refs, schemas)
    queries = {endpoint.query.__name__ for endpoint in endpoints if endpoint.query}
    schemas = {name: _with_defaults_in_words(schema) for name, schema in schemas.items() if name not in queries}
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


def _operation(endpoint: Endpoint, refs: Mapping[Any, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint, refs, schemas)],
        "responses": {
            str(status): _response(endpoint, status, body, refs) for status, body in endpoint.responses.items()
        },
    }
    for status in sorted(_error_statuses(endpoint)):
        model = endpoint.errors.get(status, Problem)
        operation["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": refs[model]}},
        }
    if endpoint.permission:
        operation["security"] = [{"token": []}, {}]
        operation["description"] = f"Requires the permission `{endpoint.permission}`."
    if endpoint.body:
        content = {"application/json": {"schema": refs[endpoint.body]}}
        operation["requestBody"] = {"required": endpoint.body_is_required, "content": content}
    return operation


def _error_statuses(endpoint: Endpoint) -> set[int]:
    """The endpoint's own, and those that follow from its permission, body, query and path."""
    found = set(endpoint.errors) | {503}
    found |= {400, 401, 403} if endpoint.permission else set()
    found |= {400, 413, 415, 422} if endpoint.body else set()
    found |= {422} if endpoint.query else set()
    found |= {404, 422} if "{" in endpoint.path else set()
    return found | ({409} if endpoint.may_conflict else set())


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", endpoint.template)
    return [{"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS[name]} for name in names]


def _query_parameters(endpoint: Endpoint, refs: Mapping[Any, Any], schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not endpoint.query:
        return []
    schema = schemas[refs[endpoint.query]["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _query_schema(field)}
        for name, field in schema["properties"].items()
    ]


def _query_schema(field: dict[str, Any]) -> dict[str, Any]:
    """Without null, which a query string can't express: the parameter is omitted instead."""
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    if field.get("default") is not None:
        rest["default"] = field["default"]
    return rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})


def _with_defaults_in_words(schema: dict[str, Any]) -> dict[str, Any]:
    """Without `default`, by which generators of TypeScript take a member for one that is always present."""
    parts = {"anyOf": [_with_defaults_in_words(part) for part in schema["anyOf"]]} if "anyOf" in schema else {}
    members = {name: _with_default_in_words(member) for name, member in schema.get("properties", {}).items()}
    return schema | parts | ({"properties": members} if members else {})


def _with_default_in_words(member: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in member.items() if name != "default"}
    if member.get("default") in (None, ""):
        return rest
    words = f"{member.get('description', '')} Default: {json.dumps(member['default'])}."
    return rest | {"description": words.strip()}


def _response(endpoint: Endpoint, status: int, body: Any, refs: Mapping[Any, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if isinstance(body, str):
        response["content"] = {body: {}}
    elif body is not None:
        response["content"] = {"application/json": {"schema": refs[body]}}
    if endpoint.sends_location:
        response["headers"] = {"Location": {"required": True, "schema": {"type": "string"}}}
    if 304 in endpoint.responses:
        response["headers"] = {"ETag": {"required": True, "schema": {"type": "string"}}}
    return response
