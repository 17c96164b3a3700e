"""`reactor token`: makes a token for the HTTP API."""

import click

from reactor.cli.options import json_option
from reactor.cli.output import print_json
from reactor_http.auth.caller import Permission
from reactor_http.auth.tokens import NAME, make_token


def _permissions(context: click.Context, parameter: click.Parameter, value: str) -> list[Permission]:
    words = [word.strip() for word in value.replace("+", ",").split(",") if word.strip()]
    if not words or not set(words) <= set(Permission):
        raise click.BadParameter(f"a list of {', '.join(Permission)}, separated by commas.")
    return [Permission(word) for word in words]


def _name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not NAME.fullmatch(value):
        raise click.BadParameter("up to 64 letters, digits and . _ @ -, the first a letter or digit.")
    return value


@click.command()
@click.argument("name", callback=_name)
@click.option(
    "--allow",
    metavar="PERMISSIONS",
    default="view",
    show_default=True,
    callback=_permissions,
    help="What it may be used for: view, submit, operate; several are separated by commas.",
)
@json_option
def token(name: str, allow: list[Permission], as_json: bool) -> None:
    """Make a token for the HTTP API. NAME is what the audit calls whoever uses it.

    \b
      reactor token grafana
      reactor token importer --allow submit
      reactor token anna --allow view,submit,operate

    \b
      view      see jobs, pipelines, workers, queues; open streams
      submit    submit jobs and pipelines
      operate   cancel, retry, recover, pause, resume, drain

    The token is printed once and kept nowhere. The entry holds only its hash: put it into REACTOR_TOKENS (several are
    separated by commas), or on a line of the file that REACTOR_TOKENS_FILE names. Servers read that file again when it
    changes; without its line a token is revoked. A second token of the same name may stand beside the first, so that
    one can be replaced by the other.
    """
    made, entry = make_token(name, allow)
    if as_json:
        print_json({"name": name, "permissions": allow, "token": made, "entry": entry})
        return
    click.echo(f"token  {made}")
    click.echo(f"entry  {entry}")
    click.echo(
        "\nGive the token to whoever is to use it, as `Authorization: Bearer TOKEN`: it is not shown again."
        "\nPut the entry into REACTOR_TOKENS, or into the file that REACTOR_TOKENS_FILE names.",
        err=True,
    )
