-- The database's clock, which decides when a job is due.
select clock_timestamp()
