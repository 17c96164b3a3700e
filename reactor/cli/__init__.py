"""The command `reactor`: reads flags and settings, calls the engine, prints answers and errors."""

import sys
from importlib import import_module

import click

from reactor import __version__
from reactor.errors import ReactorError
from reactor.log import configure_logging

# Each command and the module it is in, in the order of the help.
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
    "cancel": "operate",
    "retry": "operate",
    "recover": "operate",
    "pause": "operate",
    "resume": "operate",
    "drain": "operate",
    "schedules": "schedules",
    "prune": "prune",
    "token": "token",
}


class _Commands(click.Group):
    """A command is imported when it is called: all of them together take a second."""

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
      reactor watch 17    its pipeline, live
      reactor jobs        what there is
      reactor why 17      why job 17 is not running

    Settings are REACTOR_* environment variables; flags win over them.

    Exit codes: 0 done, 1 it did not work (the reason is printed), 2 the command or a setting is wrong.
    """
    configure_logging(log_level)


def main() -> None:
    try:
        cli()
    except ReactorError as error:
        from reactor.cli.output import harmless

        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(harmless(error, lines=True), err=True)
        sys.exit(error.exit_code)
