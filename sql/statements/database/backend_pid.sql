-- The process that answers. Behind a pooler it is not the one that the connection was given at its start.
select pg_backend_pid()
