-- The version of this server, and what it was built for.
select version()
