"""GET /metrics for Prometheus: the engine's metrics from the database, and those of this process."""

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
from reactor_http.cache import CachedValue
from reactor_http.measure import Measure, families
from reactor_http.metrics.worker_metrics import worker_metrics
from reactor_http.middleware.request_counts import RequestCounts
from reactor_http.state import AppState

log = get_logger(__name__)

# Long enough for every scraper to read the final counts of a worker that has ended.
_ENDED_SECONDS = 300.0


class Metrics:
    """Builds all metrics per request; nothing is registered globally. Those from the database are cached briefly."""

    def __init__(self, state: AppState, request_counts: RequestCounts) -> None:
        self._state = state
        self._request_counts = request_counts
        self._database: CachedValue[list[Measure]] = CachedValue(state.timings.metrics_cache_seconds)

    async def respond(self, request: Request) -> Response:
        measures = [*await self._database.get(lambda: _query(self._state)), *_requests(self._request_counts)]
        for source in self._state.sources:
            measures.extend(source())
        return render_metrics(request, measures)


def render_metrics(request: Request, measures: Iterable[Measure]) -> Response:
    """These measures and the process metrics, in the format that the client accepts."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families([_build_info(), *measures])))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=None, headers={"Content-Type": content_type})


class _Collected:
    def __init__(self, collected: list[Metric]) -> None:
        self._collected = collected

    def collect(self) -> list[Metric]:
        return self._collected


def _build_info() -> Measure:
    return Measure("reactor_build_info", "The running version.", "gauge", 1, {"version": __version__})


async def _query(state: AppState) -> list[Measure]:
    """All metrics from the database. A part that takes too long is omitted and reported as down."""
    measures: list[Measure] = []
    is_up = True
    try:
        async with asyncio.timeout(state.timings.metrics_seconds), state.connection() as connection:
            for part, query in _PARTS.items():
                try:
                    measures.extend(await query(connection, state.timings.metrics_statement_seconds))
                    is_complete = True
                except TooMuchToCount as error:
                    log.warning("metrics omitted", part=part, error=error.message)
                    is_complete = False
                text = "Whether this part of the database metrics was read in time."
                measures.append(Measure("reactor_scrape_part_up", text, "gauge", is_complete, {"part": part}))
    except (ReactorError, *DRIVER_ERRORS) as error:
        if classify(error) is Failure.BUG:
            raise
        log.warning("database metrics omitted", error=summary(error))
        is_up = False
    measures.append(Measure("reactor_database_up", "Whether the database responded.", "gauge", is_up))
    return measures


async def _query_workload(connection: Connection, seconds: float) -> Iterator[Measure]:
    return _workload(await workload(connection, within_seconds=seconds))


def _workload(records: list[Record]) -> Iterator[Measure]:
    for record in records:
        labels = {"queue": record["queue"], "job_type": record["job_type"]}
        for state in ("due", "running", "scheduled", "parked", "waiting"):
            text = "Unfinished jobs. Counts of jobs that are not running stop at 100,000."
            yield Measure("reactor_jobs", text, "gauge", record[state], labels | {"state": state})
        text = "Time that the oldest due job has been waiting; 0: none is due."
        oldest = record["oldest_due_seconds"] or 0
        yield Measure("reactor_jobs_oldest_due_seconds", text, "gauge", oldest, labels)
        if record["due_schedules"]:
            text = "Schedules whose next job is overdue."
            yield Measure("reactor_schedules_due", text, "gauge", record["due_schedules"], labels)


async def _query_workers(connection: Connection, seconds: float) -> Iterator[Measure]:
    return _workers(await worker_counts(connection, _ENDED_SECONDS, within_seconds=seconds))


def _workers(records: list[Record]) -> Iterator[Measure]:
    alive = [record for record in records if record["is_alive"]]
    yield Measure("reactor_workers", "Worker processes with a valid lease.", "gauge", len(alive))
    for record in records:
        labels = {"pod": record["pod"], "worker": record["worker"]}
        if record["is_alive"]:
            text = "Maximum number of jobs that the worker runs at once."
            yield Measure("reactor_worker_capacity", text, "gauge", record["capacity"], labels)
            text = "Time since the worker's last heartbeat."
            age = record["heartbeat_age_seconds"]
            yield Measure("reactor_worker_heartbeat_age_seconds", text, "gauge", age, labels)
        if record["counts"] is not None:
            yield from worker_metrics(record["pod"], record["worker"], json.loads(record["counts"]))


async def _query_server(connection: Connection, seconds: float) -> Iterator[Measure]:
    return _server(await vitals(connection, within_seconds=seconds))


def _server(records: list[Record]) -> Iterator[Measure]:
    [record] = records
    text = "Usage of the server's notification queue, 0 to 1; when it is full, inserts fail."
    yield Measure("reactor_notification_queue_usage_ratio", text, "gauge", record["notification_queue_usage"])
    text = "Age of the oldest open client transaction that this database user can see."
    yield Measure("reactor_oldest_transaction_seconds", text, "gauge", record["oldest_transaction_seconds"])
    text = "Transactions since the oldest snapshot that prevents vacuum from removing dead rows."
    yield Measure("reactor_oldest_xmin_age_transactions", text, "gauge", record["oldest_xmin_age"])
    text = "Whether draining is on: pods claim no jobs (`reactor drain on`)."
    yield Measure("reactor_draining", text, "gauge", record["draining"])


_PARTS: dict[str, Callable[[Connection, float], Awaitable[Iterator[Measure]]]] = {
    "workload": _query_workload,
    "workers": _query_workers,
    "server": _query_server,
}


def _requests(request_counts: RequestCounts) -> Iterator[Measure]:
    for (method, route, status), n in request_counts.requests.items():
        labels = {"method": method, "route": route, "status": str(status)}
        yield Measure("reactor_http_requests", "Requests handled by this process.", "counter", n, labels)
    for route, histogram in request_counts.durations.items():
        text = "Time from a request to the first byte of its response."
        yield Measure("reactor_http_request_duration_seconds", text, "histogram", histogram, {"route": route})
