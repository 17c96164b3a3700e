"""/openapi.json matches the server's behaviour, for valid and for generated invalid requests."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from reactor.client.submit import NewJob, submit_many
from reactor.database.connection import connect
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker, register_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome
from reactor.testing import Databases
from reactor_http.api.endpoint import Endpoint
from reactor_http.app import ENDPOINTS
from tests.support.http_app import make_app
from tests.support.until import until

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
)


@pytest.fixture(scope="module")
def address(databases: Databases) -> Iterator[str]:
    """The address of a server with rows of every kind. In a thread, because schemathesis is synchronous."""
    started, stop = threading.Event(), asyncio.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        async with databases.clone() as url:
            await seed(url)
            app = make_app(url)
            server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
            found["loop"] = asyncio.get_running_loop()
            serving = asyncio.create_task(server.serve())
            await until(lambda: server.started)
            found["address"] = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            started.set()
            await stop.wait()
            server.should_exit = True
            await serving
            await app.state.reactor.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(30)
    yield found["address"]
    found["loop"].call_soon_threadsafe(stop.set)
    thread.join()


async def seed(url: str) -> None:
    async with connect(url, name="seed") as connection:
        worker = Worker("pod-1", {"work": None}, capacity=10)
        await register_worker(connection, worker, 600)
        await submit_many(connection, [NewJob(job_type="work", scope=f"s{n}", tags=["a"]) for n in range(8)])
        outcomes: list[Outcome] = [Completed({"n": 1}), Failed("no"), Errored("again", retry_after_seconds=60)]
        jobs = await claim(connection, worker, 6)
        await settle(
            connection, [Ending(job.id, job.attempt_id, outcome) for job, outcome in zip(jobs, outcomes, strict=False)]
        )
        await connection.execute("insert into reactor.steps (job_id, name, position) values (1, 'a', 0), (2, 'b', 1)")
        await connection.execute("insert into reactor.jobs (job_type) values (null)")
        await connection.execute("insert into reactor.queues values ('q', true, 3)")
        await connection.execute(
            "insert into reactor.schedules (name, job_type, every) values ('nightly', 'work', '1 day')"
        )


@pytest.fixture(scope="module")
def described(address: str) -> Any:
    return schemathesis.openapi.from_url(f"{address}/openapi.json")


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(
    "endpoint",
    [endpoint for endpoint in ENDPOINTS if not endpoint.is_stream],
    ids=lambda endpoint: f"{endpoint.method} {endpoint.template}",
)
def test_every_endpoint_responds_as_described(
    address: str, described: Any, endpoint: Endpoint, mode: GenerationMode
) -> None:
    """With requests that match the description, and with requests that don't. Streams have their own tests."""
    operation = described[endpoint.template][endpoint.method]

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=list(CHECKS))

    try:
        send()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "no request matches the description"
    # A generated request may have switched draining on, which would make later submissions fail.
    assert httpx.post(f"{address}/v1/drain", json={"on": False}, timeout=20).status_code == 200


async def test_the_document_lists_exactly_the_endpoints(api: httpx.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert described == {(endpoint.template, endpoint.method) for endpoint in ENDPOINTS}
    assert document["openapi"].startswith("3.1")
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


@pytest.fixture
async def schemas(api: httpx.AsyncClient) -> Any:
    return (await api.get("/openapi.json")).json()["components"]["schemas"]


async def test_a_schema_has_a_plain_name_and_no_member_of_that_name(schemas: Any) -> None:
    """Generators make a module and a class of it, in which such a member hides the class. A dash, as in pydantic's
    -Input and -Output, makes two schemas collide."""
    assert [name for name in schemas if not name.isalnum()] == []
    members = {name: schema.get("properties", {}) for name, schema in schemas.items()}
    assert [name for name, own in members.items() if name.lower() in {member.replace("_", "") for member in own}] == []


async def test_queries_are_described_as_parameters_only(schemas: Any) -> None:
    assert [name for name in schemas if name.endswith("Query")] == []


async def test_defaults_are_described_in_words(schemas: Any) -> None:
    """A member with `default` is mandatory in generated TypeScript."""
    assert '"default":' not in json.dumps(schemas)
    fields = schemas["JobRequest"]["properties"]
    assert fields["queue"]["description"].endswith('Default: "default".')
    assert fields["priority"]["description"] == "Lower values run first. Default: 0."
    assert fields["exclusive"]["description"].endswith("Default: false.")
    dependency = schemas["DependencyRequest"]["anyOf"][-1]["properties"]
    assert dependency["needs"]["description"].endswith('Default: "completed".')


REFUSED = [
    {"job_type": "a\x01b"},
    {"job_type": "a\x85b"},
    {"job_type": " a"},
    {"job_type": "a\u2003"},
    {"job_type": "a", "queue": "a\nb"},
    {"job_type": "a", "scope": "a\tb"},
    {"job_type": "a", "idempotency_key": "\x7f"},
    {"job_type": "a", "tags": ["a\x00b"]},
    {"job_type": "a", "exclusive": True},
    {"job_type": "a", "exclusive": True, "scope": None},
]
ACCEPTED = [
    {"job_type": "a b"},
    {"job_type": "ä", "scope": " x=1/ü ", "exclusive": True},
    {"job_type": "a", "exclusive": False},
    {"job_type": "a", "exclusive": False, "scope": None},
    {"job_type": "a", "tags": ["a\nb", ""]},
]


@pytest.mark.parametrize("job", [*REFUSED, *ACCEPTED], ids=repr)
async def test_the_schema_refuses_what_the_server_refuses(api: httpx.AsyncClient, job: dict[str, Any]) -> None:
    document = (await api.get("/openapi.json")).json()
    for name, path, body in (
        ("JobRequest", "/v1/jobs", job),
        ("PipelineRequest", "/v1/pipelines", {"jobs": [job]}),
    ):
        rules = document | {"$ref": f"#/components/schemas/{name}"}
        is_valid = jsonschema_rs.validator_for(rules).is_valid(body)
        response = await api.post(path, json=body)
        assert is_valid == (response.status_code != 422) == (job in ACCEPTED), response.text


async def test_names_of_jobs_in_a_pipeline_follow_the_described_rules(api: httpx.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    validator = jsonschema_rs.validator_for(document | {"$ref": "#/components/schemas/PipelineRequest"})
    for name, is_valid in (("a#", True), ("#1", False), ("a\x00", False), ("a\x1f", False), ("", False)):
        body = {"jobs": [{"job_type": "a", "name": name}]}
        assert (validator.is_valid(body), (await api.post("/v1/pipelines", json=body)).status_code) == (
            is_valid,
            202 if is_valid else 422,
        )
    properties = document["components"]["schemas"]["PipelineJobRequest"]["properties"]
    assert "name of another job in this request" in properties["depends_on"]["description"]
    assert "unique" in properties["name"]["description"]


@pytest.mark.parametrize("identity", range(1, 10))
def test_existing_jobs_are_returned_as_described(described: Any, identity: int) -> None:
    """Generated ids rarely exist."""
    paths = ["/v1/jobs/{job_id}", "/v1/jobs/{job_id}/why"]
    for path in paths:
        described[path]["GET"].Case(path_parameters={"job_id": identity}).call_and_validate(checks=list(CHECKS))


def test_existing_pipelines_are_returned_as_described(address: str, described: Any) -> None:
    for pipeline in httpx.get(f"{address}/v1/pipelines", timeout=20).json()["pipelines"]:
        case = described["/v1/pipelines/{pipeline_id}"]["GET"].Case(
            path_parameters={"pipeline_id": pipeline["pipeline_id"]}
        )
        case.call_and_validate(checks=list(CHECKS))
