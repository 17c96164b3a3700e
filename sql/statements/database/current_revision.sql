-- The revision of the database's schema; no row while a migration down to `base` is the last one.
select version_num from reactor.alembic_version
