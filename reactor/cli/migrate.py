"""`reactor migrate`: creates or upgrades the tables."""

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
    help="Downgrade to a revision ('base': before the first). Drops what later revisions added, including data.",
)
@click.option("--yes", is_flag=True, help="Don't ask for confirmation of --down-to.")
def migrate(sql: bool, down_to: str | None, yes: bool) -> None:
    """Create or upgrade the tables.

    Any number of pods may run this at the same time: one migrates, the others wait. A failed migration changes
    nothing and can be run again. The database user must be a member of reactor_owner, or be allowed to create roles
    and schemas; otherwise the SQL for an administrator is printed.
    """
    if sql:
        click.echo(migration_script(), nl=False)
        return
    if down_to and not yes:
        click.confirm(f"Drop everything added after revision {down_to}, including data?", abort=True)
    before, after = anyio.run(_migrate, down_to)
    at = after or "base"
    click.echo(
        f"The schema is at revision {at}" + (" already." if before == after else f" (was: {before or 'missing'}).")
    )


async def _migrate(down_to: str | None) -> tuple[str | None, str | None]:
    async with locate(read_settings()) as location:
        return await (migrate_down(location.listen_url, down_to) if down_to else migrate_up(location.listen_url))
