"""The command `reactor`: reads flags and settings, calls the engine, prints results and errors.

Imports every other package. Nothing imports it.
"""

import sys
from importlib import import_module

import click

from reactor import __version__
from reactor.errors import ReactorError
from reactor.log import configure_logging

# The module of each command, in the order of the help.
_MODULES = {
    "up": "up",
    "worker": "worker",
    "serve": "serve",
    "migrate": "migrate",
    "doctor": "doctor",
    "submit": "submit",
    "watch": "watch",
    "jobs": "jobs",
    "why": "jobs",
    "logs": "logs",
    "cancel": "operate",
    "retry": "operate",
    "recover": "operate",
    "pause": "operate",
    "resume": "operate",
    "drain": "operate",
    "limits": "limits",
    "types": "types",
    "schedules": "schedules",
    "prune": "prune",
    "token": "token",
}


class _Commands(click.Group):
    """Imports a command only when it is called, since importing all of them takes a second."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return None
        command: click.Command = getattr(import_module(f"reactor.cli.{_MODULES[name]}"), name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="reactor")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    envvar="REACTOR_LOG_LEVEL",
    show_default=True,
    help="Minimum level of log records. They go to standard error, as JSON lines unless it is a terminal.",
)
def cli(log_level: str) -> None:
    """Run jobs and pipelines on PostgreSQL: insert a row, and a pod runs it.

    \b
    Try it with an embedded PostgreSQL:
      reactor up
    Use your own server:
      export REACTOR_DATABASE_URL=postgresql://user:password@host/database
      reactor doctor      check the setup
      reactor migrate     create or upgrade the tables
    Then:
      reactor submit csv_ingest '{"file": "a.csv"}'
      reactor watch 17    follow the pipeline of job 17
      reactor jobs        list jobs
      reactor why 17      explain why job 17 is not running
      reactor logs 17     print what its handler logged

    Settings are REACTOR_* environment variables; flags override them.

    Exit codes: 0 success, 1 failure (the reason is printed), 2 invalid command or setting.
    """
    configure_logging(log_level)


def main() -> None:
    try:
        cli()
    except ReactorError as error:
        from reactor.cli.output import printable

        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(printable(error, keep_newlines=True), err=True)
        sys.exit(error.exit_code)
