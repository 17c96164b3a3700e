-- As settle.sql ($1 to $9), with the last lines of these attempts in the same commit: those of attempts that still held
-- their jobs. $10 to $19 as $3 to $13 of write_logs.sql, without $6: an earlier try that was committed has ended the
-- attempts. The third column is the error, if the lines can't be stored; the ends are written all the same.
with ended as materialized (
    select s.id, s.state
    from reactor.settle($1::bigint[], $2::uuid[], $3::text[], $4::jsonb[], $5::text[], $6::text[], $7::float8[],
        $8::int[], $9::int) s
), logged as materialized (
    select reactor.insert_logs(case when bool_or(e.id is null) then $1 else array_agg(e.id) end, $1, $2,
        $10::int[], $11::bigint[], $12::int, false, $13::int[], $14::int[], $15::float8[], $16::text[], $17::text[],
        $18::text[], $19::jsonb[]) as error
    from ended e
)
select e.id, e.state, l.error from ended e cross join logged l
