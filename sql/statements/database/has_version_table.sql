-- Whether the database has ever been migrated: a table that does not exist can't be queried.
select to_regclass('reactor.alembic_version') is not null
