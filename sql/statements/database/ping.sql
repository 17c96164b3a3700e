-- A network that drops all packets looks like an idle connection: only an answer proves that the connection lives.
select 1
