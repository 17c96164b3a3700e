-- Alembic creates this table before it runs the first revision; here it completes a schema that is built without
-- Alembic.
create table if not exists reactor.alembic_version (
    version_num varchar(32) not null,
    constraint alembic_version_pkc primary key (version_num)
);
comment on table reactor.alembic_version is 'The revision of this schema, written by reactor migrate.';
