"""The command `reactor`: reads flags and settings, calls the engine, prints answers and errors."""

import sys

import click

from reactor import __version__
from reactor.cli.doctor import doctor
from reactor.cli.jobs import jobs, why
from reactor.cli.migrate import migrate
from reactor.cli.operate import cancel, drain, pause, recover, resume, retry
from reactor.cli.show import harmless
from reactor.cli.submit import submit
from reactor.cli.up import serve, up
from reactor.cli.worker import worker
from reactor.errors import ReactorError
from reactor.log import configure_logging


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reactor")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    envvar="REACTOR_LOG_LEVEL",
    show_default=True,
    help="What is logged (to standard error; JSON lines unless that is a terminal).",
)
def cli(log_level: str) -> None:
    """Jobs and pipelines on PostgreSQL: insert a row, and it is run.

    \b
    To try it, with a PostgreSQL of its own:
      reactor up
    Against your server:
      export REACTOR_DATABASE_URL=postgresql://user:password@host/database
      reactor doctor      is everything in place?
      reactor migrate     make the tables
    Then:
      reactor submit csv_ingest '{"file": "a.csv"}'
      reactor jobs        what there is
      reactor why 17      why job 17 is not running

    Settings are REACTOR_* environment variables; flags win over them.

    Exit codes: 0 done, 1 it did not work (the reason is printed), 2 the command or a setting is wrong.
    """
    configure_logging(log_level)


_COMMANDS = (up, worker, serve, migrate, doctor, submit, jobs, why, cancel, retry, recover, pause, resume, drain)
for command in _COMMANDS:
    cli.add_command(command)


def main() -> None:
    try:
        cli()
    except ReactorError as error:
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(harmless(error, lines=True), err=True)
        sys.exit(error.exit_code)
