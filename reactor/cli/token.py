"""`reactor token`: creates a token for the HTTP API."""

import click

from reactor.cli.options import json_option
from reactor.cli.output import print_json
from reactor_http.auth.caller import Permission
from reactor_http.auth.tokens import NAME, make_token


def _permissions(context: click.Context, parameter: click.Parameter, value: str) -> list[Permission]:
    words = [word.strip() for word in value.replace("+", ",").split(",") if word.strip()]
    if not words or not set(words) <= set(Permission):
        raise click.BadParameter(f"must be a comma-separated list of {', '.join(Permission)}.")
    return [Permission(word) for word in words]


def _name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not NAME.fullmatch(value):
        raise click.BadParameter("must have at most 64 letters, digits and . _ @ -, and begin with a letter or digit.")
    return value


@click.command()
@click.argument("name", callback=_name)
@click.option(
    "--allow",
    metavar="PERMISSIONS",
    default="view",
    show_default=True,
    callback=_permissions,
    help="Comma-separated permissions: view, submit, operate.",
)
@json_option
def token(name: str, allow: list[Permission], as_json: bool) -> None:
    """Create a token for the HTTP API. NAME identifies its user in the audit.

    \b
      reactor token grafana
      reactor token importer --allow submit
      reactor token anna --allow view,submit,operate

    \b
      view      see jobs, pipelines, workers, queues; open streams
      submit    submit jobs and pipelines
      operate   cancel, retry, recover, pause, resume, drain

    The token is printed once and not stored. The entry contains only its hash: add it to REACTOR_TOKENS
    (comma-separated) or to the file named by REACTOR_TOKENS_FILE (one per line). Servers reread that file when it
    changes; removing an entry revokes its token. Two tokens may have the same name, so that one can replace the other.
    """
    secret, entry = make_token(name, allow)
    if as_json:
        print_json({"name": name, "permissions": allow, "token": secret, "entry": entry})
        return
    click.echo(f"token  {secret}")
    click.echo(f"entry  {entry}")
    click.echo(
        "\nClients send the token as `Authorization: Bearer TOKEN`. It is not shown again."
        "\nAdd the entry to REACTOR_TOKENS, or to the file named by REACTOR_TOKENS_FILE.",
        err=True,
    )
