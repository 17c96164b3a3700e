-- Notifies the channel $1, on which `reactor doctor` listens with another connection.
select pg_notify($1::text, '')
