"""`reactor worker`."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import click

from reactor.concurrency import first_of
from reactor.database.connection import connect, is_pooled
from reactor.database.revision import check_revision
from reactor.embedded.locate import Location, locate
from reactor.errors import ReactorError
from reactor.log import get_logger
from reactor.pod.supervisor import PodOptions, Supervisor
from reactor.settings import Settings, read_settings
from reactor.worker.claim_loop import WorkerOptions

log = get_logger(__name__)


@click.command()
@click.option("--app", required=True, metavar="MODULE", help="Module that registers handlers when it is imported.")
@click.option("--queues", metavar="A,B", help="Work on these queues only.  [REACTOR_QUEUES, default: all]")
@click.option("--concurrency", type=int, help="Jobs at once in each process.  [REACTOR_CONCURRENCY, default 10]")
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes.")
@click.option("--once", is_flag=True, help="Run what is due, then exit.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Run N jobs, then exit.")
@click.option(
    "--health-port", type=int, help="Answer health checks and /metrics here.  [REACTOR_HEALTH_PORT, default: nowhere]"
)
@click.option("--health-host", help="At this address.  [REACTOR_HEALTH_HOST, default 127.0.0.1]")
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
    """Run jobs: those of the types that the app has handlers for.

    \b
    handlers.py:
      from reactor import Context, Job, register
      @register("csv_ingest", max_attempts=5)
      async def csv_ingest(job: Job, ctx: Context) -> dict:
          ...
    Then:
      reactor worker --app handlers

    A small process supervises the ones that run handlers: it restarts them, puts back what they leave behind, and
    keeps this pod's lease. Start as many as you like, on any number of machines.

    SIGTERM or Ctrl-C: no new jobs; those that run get REACTOR_SHUTDOWN_GRACE_SECONDS to end, then they are given back
    (REACTOR_ON_SHUTDOWN=fail: failed). Twice: at once.

    \b
    Exit codes: 0  stopped as asked, or nothing left to do
                1  could not start; a job was interrupted by the shutdown;
                   the database could not be reached to give jobs back;
                   with --once and --max-jobs: an attempt failed
                2  the command or a setting is wrong
    """
    if max_jobs is not None and processes > 1:
        raise click.UsageError("--max-jobs counts within one process: leave --processes at 1.")
    settings = read_settings(queues=queues, concurrency=concurrency, health_port=health_port, health_host=health_host)
    level = context.find_root().params["log_level"]
    sys.exit(asyncio.run(_work(settings, app, processes, once, max_jobs, level)))


async def _work(settings: Settings, app: str, processes: int, once: bool, max_jobs: int | None, log_level: str) -> int:
    async with locate(settings) as location:
        async with connect(location.url, name="reactor worker", prepares=False) as connection:
            await check_revision(connection)
            pooled = await is_pooled(connection)
        supervisor = Supervisor(pod_options(settings, location, app, pooled, processes, once, max_jobs, log_level))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        async with _probed(supervisor, settings, location):
            await supervisor.run()
    return exit_code(supervisor, failures_count=once or max_jobs is not None)


@asynccontextmanager
async def _probed(supervisor: Supervisor, settings: Settings, location: Location) -> AsyncIterator[None]:
    """Health checks are answered as long as the supervisor runs, if they are wanted."""
    if settings.health_port is None:
        yield
        return
    # Takes a third of a second to import, and most pods have no use for it.
    from reactor_http.server.connection_limits import Limits
    from reactor_http.server.probes import create_probes
    from reactor_http.server.serve import serve_app

    # Tokens are for the API, which is not here.
    where = settings.model_copy(
        update={"host": settings.health_host, "port": settings.health_port, "tokens": None, "tokens_file": None}
    )
    probes = create_probes(
        location.url,
        where,
        checks=health_checks(supervisor),
        pod=supervisor.pod,
        counts=lambda: supervisor.counts,
    )
    stop, listening = asyncio.Event(), asyncio.Event()

    def tell(address: str) -> None:
        log.info("answering health checks", address=address)
        listening.set()

    serving = asyncio.create_task(
        serve_app(probes, where, stop, on_listening=tell, limits=Limits(connections=200), is_public=True)
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
    """What must be well for a pod to do its work, beside the database."""
    return {"heartbeat": lambda: supervisor.renews_its_leases, "listener": lambda: supervisor.is_listening}


def exit_code(supervisor: Supervisor, failures_count: bool = False) -> int:
    return int(supervisor.interrupted > 0 or supervisor.left_jobs_claimed or (failures_count and supervisor.failed > 0))


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
