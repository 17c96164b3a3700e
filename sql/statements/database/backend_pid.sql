-- The process that answers. Behind a pooler it is not the one that the connection was given at its start. An answer
-- also proves that the connection lives: a network that drops all packets looks like an idle one.
select pg_backend_pid()
