"""`reactor up`: everything on this machine, until it is told to stop."""

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable

import click

from reactor.cli.options import address_options
from reactor.cli.worker import exit_code, health_checks, pod_options
from reactor.database.connection import connect, is_pooled, without_password
from reactor.database.migrate import migrate as migrate_up
from reactor.demo import submit_demo
from reactor.embedded.locate import Location, locate
from reactor.errors import ReactorError, first_error
from reactor.pod.supervisor import Supervisor
from reactor.settings import Settings, read_settings
from reactor_http.app import create_app
from reactor_http.server.serve import address_of, bind, serve_app

DEMO = "reactor.demo"


@click.command()
@click.option(
    "--app", metavar="MODULE", default=DEMO, show_default=True, help="Module that registers handlers when imported."
)
@click.option("--demo/--no-demo", default=None, help="Submit the demo pipeline.  [default: with the demo's handlers]")
@address_options
@click.pass_context
def up(context: click.Context, app: str, demo: bool | None, host: str | None, port: int | None) -> None:
    """Start everything on this machine: PostgreSQL, tables, one pod, HTTP server. Ctrl-C stops it.

    Without REACTOR_DATABASE_URL an embedded PostgreSQL is started, whose data is kept for the next time.
    Exit codes are those of `reactor worker`.
    """
    settings = read_settings(host=host, port=port)
    with_demo = app == DEMO if demo is None else demo
    sys.exit(asyncio.run(_up(settings, app, with_demo, context.find_root().params["log_level"])))


async def _up(settings: Settings, app: str, demo: bool, log_level: str) -> int:
    async with locate(settings) as location:
        await migrate_up(location.listen_url)
        async with connect(location.url, name="reactor up", prepares=False) as connection:
            pooled = await is_pooled(connection)
        supervisor = Supervisor(pod_options(settings, location, app, pooled, log_level=log_level))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        # What can be refused is tried before anything runs.
        edge = create_app(location.url, settings, listen_url=location.listen_url, checks=health_checks(supervisor))
        listener = bind(settings)
        try:
            async with asyncio.TaskGroup() as tasks:
                # Progress is served as long as there is any: the server goes last.
                tasks.create_task(supervisor.run()).add_done_callback(lambda _: stop.set())
                greet = _greeting(location, app)
                tasks.create_task(serve_app(edge, settings, stop, on_listening=greet, listener=listener))
                if demo:
                    tasks.create_task(_submit_demo(location, address_of(settings, listener)))
        except* ReactorError as errors:
            raise first_error(errors) from None
    click.echo("Stopped.")
    return exit_code(supervisor)


async def _submit_demo(location: Location, address: str) -> None:
    async with connect(location.url, name="reactor demo", prepares=False) as connection:
        pipeline_id = await submit_demo(connection)
    click.echo(f"  demo      {address}/?pipeline={pipeline_id}\n")


def _greeting(location: Location, app: str) -> Callable[[str], None]:
    psql = location.embedded.psql if location.embedded else "psql"
    insert = "insert into reactor.jobs (job_type) values ('demo.hello') returning id"

    def greet(address: str) -> None:
        command = shlex.join([str(psql), without_password(location.url)])
        click.secho("\nreactor is up.", bold=True)
        click.echo(f"  page      {address}/")
        click.echo(f"  database  {command}")
        if app == DEMO:
            click.echo(f'  try       {command} -c "{insert}"')
        click.echo("  stop      Ctrl-C (the data is kept)")

    return greet
