"""GET /metrics: the engine, as the database knows it, and this process, for Prometheus."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator

from asyncpg import Record
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from starlette.requests import Request
from starlette.responses import Response

from reactor import __version__
from reactor.database.connection import Connection
from reactor.database.failures import DRIVER_ERRORS, Failure, classify, summary
from reactor.errors import ReactorError, TooMuchToCount
from reactor.log import get_logger
from reactor.queries.gauges import vitals, worker_counts, workload
from reactor_http.cache import Recent
from reactor_http.measure import Measure, families
from reactor_http.metrics.worker_metrics import worker_metrics
from reactor_http.middleware.request_counts import Traffic
from reactor_http.state import Edge, edge_of

log = get_logger(__name__)

_KEPT_SECONDS = 2.0
# Prometheus gives up after 10.
_STATEMENT_SECONDS = 2.0
_DATABASE_SECONDS = 6.0
# So that each of several scrapes a minute finds the last numbers of a worker that has ended.
_ENDED_SECONDS = 300.0


class Metrics:
    """Made anew for each request, with nothing registered anywhere. What the database tells is kept for a moment, so
    that it does not matter how many ask."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._recent: Recent[list[Measure]] = Recent(_KEPT_SECONDS)

    async def answer(self, request: Request) -> Response:
        edge = edge_of(request)
        measures = [*await self._recent.get(lambda: _ask(edge)), *_requests(self._traffic)]
        for source in edge.sources:
            measures.extend(source())
        return exposed(request, measures)


def exposed(request: Request, measures: Iterable[Measure]) -> Response:
    """The measures and those of this process, in the form that the caller prefers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families([_build(), *measures])))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=None, headers={"Content-Type": content_type})


class _Collected:
    def __init__(self, collected: list[Metric]) -> None:
        self._collected = collected

    def collect(self) -> list[Metric]:
        return self._collected


def _build() -> Measure:
    return Measure("reactor_build_info", "The version that runs here.", "gauge", 1, {"version": __version__})


async def _ask(edge: Edge) -> list[Measure]:
    """All that the database tells. A part that takes too long is left out, and said to be."""
    measures: list[Measure] = []
    is_up = True
    try:
        async with asyncio.timeout(_DATABASE_SECONDS), edge.connection() as connection:
            for part, ask in _PARTS.items():
                try:
                    measures.extend(await ask(connection))
                    well = True
                except TooMuchToCount as error:
                    log.warning("metrics left out", part=part, error=error.message)
                    well = False
                text = "Whether this part of what the database tells could be had in time."
                measures.append(Measure("reactor_scrape_part_up", text, "gauge", well, {"part": part}))
    except (ReactorError, *DRIVER_ERRORS) as error:
        if classify(error) is Failure.BUG:
            raise
        log.warning("metrics without the database", error=summary(error))
        is_up = False
    measures.append(Measure("reactor_database_up", "Whether the database answered.", "gauge", is_up))
    return measures


async def _of_workload(connection: Connection) -> Iterator[Measure]:
    return _work(await workload(connection, within_seconds=_STATEMENT_SECONDS))


def _work(records: list[Record]) -> Iterator[Measure]:
    for record in records:
        labels = {"queue": record["queue"], "job_type": record["job_type"]}
        for state in ("due", "running", "scheduled", "parked", "waiting"):
            text = "Jobs that have not ended. Counting of those that don't run ends at 100,000."
            yield Measure("reactor_jobs", text, "gauge", record[state], labels | {"state": state})
        text = "How long the oldest due job has been waiting; 0: none is due."
        oldest = record["oldest_due_seconds"] or 0
        yield Measure("reactor_jobs_oldest_due_seconds", text, "gauge", oldest, labels)
        if record["due_schedules"]:
            text = "Schedules whose job should have been inserted."
            yield Measure("reactor_schedules_due", text, "gauge", record["due_schedules"], labels)


async def _of_workers(connection: Connection) -> Iterator[Measure]:
    return _workers(await worker_counts(connection, _ENDED_SECONDS, within_seconds=_STATEMENT_SECONDS))


def _workers(records: list[Record]) -> Iterator[Measure]:
    alive = [record for record in records if record["is_alive"]]
    yield Measure("reactor_workers", "Worker processes that live, by their leases.", "gauge", len(alive))
    for record in records:
        labels = {"pod": record["pod"], "worker": record["worker"]}
        if record["is_alive"]:
            text = "Jobs that the worker runs at once, at most."
            yield Measure("reactor_worker_capacity", text, "gauge", record["capacity"], labels)
            text = "Since the worker's last heartbeat."
            age = record["heartbeat_age_seconds"]
            yield Measure("reactor_worker_heartbeat_age_seconds", text, "gauge", age, labels)
        if record["counts"] is not None:
            yield from worker_metrics(record["pod"], record["worker"], json.loads(record["counts"]))


async def _of_server(connection: Connection) -> Iterator[Measure]:
    return _server(await vitals(connection, within_seconds=_STATEMENT_SECONDS))


def _server(records: list[Record]) -> Iterator[Measure]:
    [record] = records
    text = "How full the server's notification queue is, 0 to 1; when it is full, inserts fail."
    yield Measure("reactor_notification_queue_usage_ratio", text, "gauge", record["notification_queue_usage"])
    text = "Age of the oldest open transaction of a client, as far as this user may see them."
    yield Measure("reactor_oldest_transaction_seconds", text, "gauge", record["oldest_transaction_seconds"])
    text = "Transactions since the oldest snapshot that keeps vacuum from clearing dead rows away."
    yield Measure("reactor_oldest_xmin_age_transactions", text, "gauge", record["oldest_xmin_age"])
    yield Measure("reactor_draining", "Whether no job is claimed (`reactor drain on`).", "gauge", record["draining"])


_PARTS: dict[str, Callable[[Connection], Awaitable[Iterator[Measure]]]] = {
    "workload": _of_workload,
    "workers": _of_workers,
    "server": _of_server,
}


def _requests(traffic: Traffic) -> Iterator[Measure]:
    for (method, route, status), n in traffic.requests.items():
        labels = {"method": method, "route": route, "status": str(status)}
        yield Measure("reactor_http_requests", "Requests answered by this process.", "counter", n, labels)
    for route, histogram in traffic.durations.items():
        text = "From a request to the first byte of its answer."
        yield Measure("reactor_http_request_duration_seconds", text, "histogram", histogram, {"route": route})
