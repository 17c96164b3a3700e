"""`reactor up`: runs PostgreSQL, a pod and the HTTP server on this machine."""

import asyncio
import shlex
import sys
from collections.abc import Callable

import click

from reactor.cli.options import address_options
from reactor.cli.signals import on_stop_signal, run_until_stopped
from reactor.cli.worker import exit_code, health_checks, pod_options
from reactor.database.connection import connect, is_pooled
from reactor.database.migrate import migrate as migrate_up
from reactor.database.url import without_password
from reactor.demo import submit_demo
from reactor.embedded.locate import Location, locate
from reactor.errors import ReactorError, first_error
from reactor.pod.supervisor import Supervisor
from reactor.settings import Settings, read_settings
from reactor_http.app import create_app
from reactor_http.server.serve import address_of, bind, serve_app

DEMO = "reactor.demo"


@click.command()
@click.option("--app", metavar="MODULE", default=DEMO, show_default=True, help="Module that registers the handlers.")
@click.option("--demo/--no-demo", default=None, help="Submit the demo pipeline.  [default: unless --app is given]")
@address_options
@click.pass_context
def up(context: click.Context, app: str, demo: bool | None, host: str | None, port: int | None) -> None:
    """Start PostgreSQL, a pod and the HTTP server on this machine.

    \b
      reactor up
      reactor up --app handlers --port 9000

    Migrates the database first. SIGTERM, SIGHUP, SIGQUIT or Ctrl-C stops everything. Without REACTOR_DATABASE_URL, an
    embedded PostgreSQL is used; its data is kept between runs. The exit codes are those of `reactor worker`.
    """
    settings = read_settings(host=host, port=port)
    with_demo = app == DEMO if demo is None else demo
    sys.exit(run_until_stopped(_up(settings, app, with_demo, context.find_root().params["log_level"])))


async def _up(settings: Settings, app: str, demo: bool, log_level: str) -> int:
    async with locate(settings) as location:
        await migrate_up(location.listen_url)
        async with connect(location.url, name="reactor up", prepares=False) as connection:
            pooled = await is_pooled(connection)
        supervisor = Supervisor(pod_options(settings, location, app, pooled, log_level=log_level))
        stop = asyncio.Event()
        on_stop_signal(supervisor.stop)
        # Invalid tokens and a port in use are reported before anything runs.
        edge = create_app(location.url, settings, listen_url=location.listen_url, checks=health_checks(supervisor))
        listener = bind(settings)
        try:
            async with asyncio.TaskGroup() as tasks:
                # The server stops after the pod, so that clients see the end of running jobs.
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
        click.echo("  stop      Ctrl-C (data is kept)")

    return greet
