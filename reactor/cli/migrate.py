"""`reactor migrate`."""

import anyio
import click

from reactor.database.migrate import migrate as migrate_up
from reactor.database.migrate import migrate_down, migration_script
from reactor.embedded.locate import locate
from reactor.settings import read_settings


@click.command()
@click.option("--sql", is_flag=True, help="Print the SQL of all migrations instead of running it.")
@click.option(
    "--down-to",
    metavar="REVISION",
    help="Go back to a revision ('base': before the first). Drops what later ones added, data included.",
)
@click.option("--yes", is_flag=True, help="Don't ask before --down-to drops something.")
def migrate(sql: bool, down_to: str | None, yes: bool) -> None:
    """Bring the database's tables to the revision that this program needs.

    Any number of pods may run this at once: one migrates, the others wait for it. A migration that fails
    changes nothing and can be run again. The user needs to be a member of reactor_owner, or be allowed to
    create roles and schemas; where it is not, the SQL for an administrator is printed.
    """
    if sql:
        click.echo(migration_script(), nl=False)
        return
    if down_to and not yes:
        click.confirm(f"Drop everything that was added after revision {down_to}, data included?", abort=True)
    before, after = anyio.run(_migrate, down_to)
    at = after or "base"
    click.echo(
        f"The schema is at revision {at}" + (" already." if before == after else f" (was: {before or 'not there'}).")
    )


async def _migrate(down_to: str | None) -> tuple[str | None, str | None]:
    async with locate(read_settings()) as location:
        return await (migrate_down(location.listen_url, down_to) if down_to else migrate_up(location.listen_url))
