"""Alembic's entry point: runs the revisions on the connection that `reactor migrate` provides, or prints their SQL.

Revisions receive `execute_frozen` as an argument. They import nothing from the engine, whose code changes after a
revision is frozen.
"""

import re
from pathlib import Path

from alembic import context, op

SCHEMA = "reactor"


def frozen_sql(script: Path) -> str:
    """The script with the files that it includes by `\\ir`, psql's command for a path relative to the script."""
    included = re.compile(r"^\\ir (\S+)$", re.MULTILINE)
    return included.sub(lambda line: frozen_sql(script.parent / line[1]), script.read_text(encoding="utf-8"))


def execute_frozen(script: Path) -> None:
    """Runs a script of any number of statements, or prints it under --sql."""
    if op.get_context().as_sql:
        op.get_context().impl.static_output(frozen_sql(script))
        return
    connection = op.get_bind()
    # A migration that waits for a lock makes all later requests wait behind it: better to fail and be run again.
    # Sent through SQLAlchemy, which begins the transaction with the first statement that it sees.
    connection.exec_driver_sql("set local lock_timeout = '30s'")
    connection.exec_driver_sql(
        "select set_config(s.name, '0', true) from pg_settings s"
        " where s.name in ('statement_timeout', 'transaction_timeout')"
    )
    driver = connection.connection.dbapi_connection
    assert driver is not None
    driver.run_async(lambda asyncpg_connection: asyncpg_connection.execute(frozen_sql(script)))


def print_sql() -> None:
    context.configure(dialect_name="postgresql", transaction_per_migration=True, version_table_schema=SCHEMA)
    for name in ("roles.sql", "prepare.sql"):
        context.get_context().impl.static_output(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    context.get_context().impl.static_output("set role reactor_owner;\n")
    with context.begin_transaction():
        context.run_migrations(execute_frozen=execute_frozen)


def run() -> None:
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise SystemExit("Run `reactor migrate` to migrate a database, and `make migration` to create a revision.")
    context.configure(connection=connection, transaction_per_migration=True, version_table_schema=SCHEMA)
    with context.begin_transaction():
        context.run_migrations(execute_frozen=execute_frozen)


if context.is_offline_mode():
    print_sql()
else:
    run()
