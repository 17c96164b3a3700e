-- Whether transactions can't write here: the server is a standby, or that is the default of server, database or user.
select current_setting('transaction_read_only')::boolean
