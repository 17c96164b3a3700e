"""`reactor up` and `reactor serve`: what runs until it is told to stop."""

import shlex
from collections.abc import Callable

import anyio
import click

from reactor.cli.options import address_options
from reactor.database import connect, without_password
from reactor.locate import Location, locate
from reactor.log import get_logger
from reactor.migrate import check_revision
from reactor.migrate import migrate as migrate_up
from reactor.settings import Settings, read_settings
from reactor_http.app import create_app
from reactor_http.serve import serve_app

log = get_logger(__name__)


@click.command()
@address_options
def up(host: str | None, port: int | None) -> None:
    """Start everything on this machine: PostgreSQL, tables, HTTP server. Ctrl-C stops it.

    Without REACTOR_DATABASE_URL an embedded PostgreSQL is started, whose data is kept for the next time.
    """
    anyio.run(_run, read_settings(host=host, port=port), True)


@click.command()
@address_options
def serve(host: str | None, port: int | None) -> None:
    """Start the HTTP server: health checks and the page."""
    anyio.run(_run, read_settings(host=host, port=port), False)


async def _run(settings: Settings, is_up: bool) -> None:
    async with locate(settings) as location:
        if is_up:
            await migrate_up(location.listen_url)
        else:
            async with connect(location.url, name="reactor serve") as connection:
                await check_revision(connection)
        greet = _greeting(location) if is_up else lambda address: log.info("serving", address=address)
        await serve_app(create_app(location.url), settings, on_listening=greet)
    click.echo("Stopped.")


def _greeting(location: Location) -> Callable[[str], None]:
    psql = location.embedded.psql if location.embedded else "psql"

    def greet(address: str) -> None:
        click.secho("\nreactor is up.", bold=True)
        click.echo(f"  page      {address}/")
        click.echo(f"  database  {shlex.join([str(psql), without_password(location.url)])}")
        click.echo("  stop      Ctrl-C (the data is kept)\n")

    return greet
