"""`reactor worker`: runs a pod."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import click

from reactor.cli.signals import on_stop_signal, run_until_stopped
from reactor.concurrency import first_of
from reactor.database.connection import connect, is_pooled
from reactor.database.revision import check_revision, check_writable
from reactor.embedded.locate import Location, locate
from reactor.errors import ReactorError
from reactor.log import get_logger
from reactor.pod.supervisor import PodOptions, Supervisor
from reactor.settings import Settings, read_settings
from reactor.worker.options import WorkerOptions

log = get_logger(__name__)


@click.command()
@click.option("--app", required=True, metavar="MODULE", help="Module that registers the handlers.")
@click.option(
    "--queues",
    metavar="A,B:2",
    help="Claim from these queues only; at most 2 jobs of B at the same time.  [REACTOR_QUEUES, default: all]",
)
@click.option(
    "--concurrency", type=int, help="Jobs that each process runs at the same time.  [REACTOR_CONCURRENCY, default: 10]"
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Number of worker processes."
)
@click.option("--once", is_flag=True, help="Run all due jobs, then exit.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Run N jobs, then exit.")
@click.option(
    "--health-port", type=int, help="Port for health checks and /metrics.  [REACTOR_HEALTH_PORT, default: not served]"
)
@click.option("--health-host", help="Address for health checks.  [REACTOR_HEALTH_HOST, default: 127.0.0.1]")
@click.pass_context
def worker(
    context: click.Context,
    app: str,
    queues: str | None,
    concurrency: int | None,
    processes: int,
    once: bool,
    max_jobs: int | None,
    health_port: int | None,
    health_host: str | None,
) -> None:
    """Run a pod, which claims and runs jobs.

    It claims jobs of the types that the app has handlers for.

    \b
    handlers.py:
      from reactor import Context, Job, register
      @register("csv_ingest", max_attempts=5)
      async def csv_ingest(job: Job, ctx: Context) -> dict:
          ...
    Then:
      reactor worker --app handlers

    A supervisor process starts the worker processes that run handlers, restarts them, releases the jobs of those that
    exit, and renews this pod's lease. Start any number of pods, on any number of machines.

    On SIGTERM, SIGHUP, SIGQUIT or Ctrl-C the pod claims no more jobs. Running jobs get REACTOR_SHUTDOWN_GRACE_SECONDS
    to finish, then they are released (REACTOR_ON_SHUTDOWN=fail: failed). A second signal stops immediately.

    \b
    Exit codes: 0  stopped by a signal, or nothing left to do
                1  failed to start; the shutdown interrupted a job;
                   the database could not be reached to release jobs;
                   with --once or --max-jobs: an attempt failed
                2  invalid command or setting
    """
    if max_jobs is not None and processes > 1:
        raise click.UsageError("--max-jobs requires --processes 1.")
    settings = read_settings(queues=queues, concurrency=concurrency, health_port=health_port, health_host=health_host)
    level = context.find_root().params["log_level"]
    sys.exit(run_until_stopped(_work(settings, app, processes, once, max_jobs, level)))


async def _work(settings: Settings, app: str, processes: int, once: bool, max_jobs: int | None, log_level: str) -> int:
    async with locate(settings) as location:
        async with connect(location.url, name="reactor worker", prepares=False) as connection:
            await check_revision(connection)
            await check_writable(connection)
            pooled = await is_pooled(connection)
        supervisor = Supervisor(pod_options(settings, location, app, pooled, processes, once, max_jobs, log_level))
        on_stop_signal(supervisor.stop)
        async with _health_checks_served(supervisor, settings, location):
            await supervisor.run()
    return exit_code(supervisor, failed_attempts_count=once or max_jobs is not None)


@asynccontextmanager
async def _health_checks_served(supervisor: Supervisor, settings: Settings, location: Location) -> AsyncIterator[None]:
    """Serves health checks while the supervisor runs, if a port is set."""
    if settings.health_port is None:
        yield
        return
    # Imported only where needed: it takes a third of a second.
    from reactor_http.server.connection_limits import Limits
    from reactor_http.server.probes import create_probes
    from reactor_http.server.serve import serve_app

    # Tokens protect the API, which is not served here.
    probe_settings = settings.model_copy(
        update={"host": settings.health_host, "port": settings.health_port, "tokens": None, "tokens_file": None}
    )
    probes = create_probes(
        location.url,
        probe_settings,
        checks=health_checks(supervisor),
        pod=supervisor.pod,
        counts=lambda: supervisor.counts,
    )
    stop, listening = asyncio.Event(), asyncio.Event()

    def announce(address: str) -> None:
        log.info("serving health checks", address=address)
        listening.set()

    serving = asyncio.create_task(
        serve_app(probes, probe_settings, stop, on_listening=announce, limits=Limits(connections=200), is_public=True)
    )
    await first_of(serving, listening.wait())
    if not listening.is_set():
        try:
            await serving
        except ReactorError as error:
            raise ReactorError(error.message, "Choose another address with --health-port or --health-host.") from error
    try:
        yield
    finally:
        stop.set()
        await serving


def health_checks(supervisor: Supervisor) -> dict[str, Callable[[], bool]]:
    """Conditions of a healthy pod, besides a reachable database."""
    return {"heartbeat": lambda: supervisor.renews_its_leases, "listener": lambda: supervisor.is_listening}


def exit_code(supervisor: Supervisor, failed_attempts_count: bool = False) -> int:
    return int(
        supervisor.interrupted > 0 or supervisor.left_jobs_claimed or (failed_attempts_count and supervisor.failed > 0)
    )


def pod_options(
    settings: Settings,
    location: Location,
    app: str,
    pooled: bool,
    processes: int = 1,
    once: bool = False,
    max_jobs: int | None = None,
    log_level: str = "info",
) -> PodOptions:
    worker = WorkerOptions(
        url=location.url,
        listen_url=location.listen_url,
        poll_seconds=settings.poll_seconds,
        reconcile_seconds=settings.heartbeat_seconds,
        once=once,
        max_jobs=max_jobs,
        prepares=not pooled,
        logs=settings.logs,
    )
    return PodOptions(
        app=app,
        pod=settings.pod_id,
        queues=settings.queues,
        concurrency=settings.concurrency,
        processes=processes,
        lease_seconds=settings.lease_seconds,
        heartbeat_seconds=settings.heartbeat_seconds,
        grace_seconds=settings.shutdown_grace_seconds,
        fail_on_shutdown=settings.on_shutdown == "fail",
        worker=worker,
        log_level=log_level,
        log_as_json=not sys.stderr.isatty(),
    )
