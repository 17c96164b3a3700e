"""`reactor serve`: runs the HTTP server."""

import asyncio

import click

from reactor.cli.options import address_options
from reactor.cli.signals import on_stop_signal, run_until_stopped
from reactor.database.connection import connect
from reactor.database.revision import check_revision
from reactor.embedded.locate import locate
from reactor.log import get_logger
from reactor.settings import Settings, read_settings
from reactor_http.app import create_app
from reactor_http.server.serve import serve_app

log = get_logger(__name__)


@click.command()
@address_options
def serve(host: str | None, port: int | None) -> None:
    """Run the HTTP server: API, progress streams and page. SIGTERM, SIGHUP, SIGQUIT or Ctrl-C stops it.

    Any number of servers can run beside the pods. Without REACTOR_TOKENS the server accepts loopback connections only;
    `reactor token` creates tokens. See docs/http.md, docs/streams.md and docs/access.md.
    """
    run_until_stopped(_serve(read_settings(host=host, port=port)))


async def _serve(settings: Settings) -> None:
    async with locate(settings) as location:
        async with connect(location.url, name="reactor serve", prepares=False) as connection:
            await check_revision(connection)
        stop = asyncio.Event()
        on_stop_signal(stop.set)
        app = create_app(location.url, settings, listen_url=location.listen_url)
        await serve_app(app, settings, stop, on_listening=lambda address: log.info("serving", address=address))
