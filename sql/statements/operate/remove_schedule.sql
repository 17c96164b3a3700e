-- Removes the schedule $1; its jobs stay. Returns its name, and no row if it does not exist.
delete from reactor.schedules s where s.name = $1::text returning s.name
