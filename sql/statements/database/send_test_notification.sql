-- Notifies the channel $1, to find out whether a notification arrives where it should.
select pg_notify($1::text, '')
