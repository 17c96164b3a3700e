-- Removes the schedule $1; its jobs stay. Returns its name, and nothing if there is none.
delete from reactor.schedules s where s.name = $1::text returning s.name::text
