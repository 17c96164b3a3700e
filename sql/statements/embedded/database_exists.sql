-- CREATE DATABASE has no IF NOT EXISTS.
select exists (select from pg_database where datname = $1::text)
