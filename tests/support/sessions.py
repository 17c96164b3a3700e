"""What other sessions of the test's database are doing."""

from reactor.database.connection import Connection


async def waits_for_a_lock(connection: Connection, name: str) -> bool:
    """Whether a session whose application_name starts with `name` waits for a lock."""
    found: bool = await connection.fetchval(
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and starts_with(application_name, $1))",
        name,
    )
    return found
