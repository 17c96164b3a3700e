-- A running attempt says how far it is ($3, NULL: unknown) and what it is doing ($4, NULL: as before). No row: stale.
update reactor.jobs j set
    progress = coalesce($3::real, j.progress), status_message = coalesce($4::text, j.status_message),
    changed = pg_current_xact_id()
where j.id = $1::bigint and j.attempt_id = $2::uuid and j.state = 'running'
returning j.id
