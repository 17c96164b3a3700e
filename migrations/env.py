"""Alembic's entry: runs the revisions on the connection that reactor.database.migrate hands it, or prints their SQL."""

from alembic import context

from reactor.database.migrate import preparation_script

SCHEMA = "reactor"


def print_sql() -> None:
    context.configure(dialect_name="postgresql", transaction_per_migration=True, version_table_schema=SCHEMA)
    context.get_context().impl.static_output(f"{preparation_script()}\nset role reactor_owner;\n")
    with context.begin_transaction():
        context.run_migrations()


def run() -> None:
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise SystemExit("Databases are migrated by `reactor migrate`; alembic alone is for `alembic revision`.")
    context.configure(connection=connection, transaction_per_migration=True, version_table_schema=SCHEMA)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    print_sql()
else:
    run()
