-- Stores lines of the attempts $2 (the numbers of which are $3) of the jobs $1. $4: jobs whose earlier attempts keep no
-- more than $5 - 1 of their logs. $6: an earlier try may have been committed. The lines: which of the jobs each belongs
-- to $7 (from 1), their numbers $8, ages in seconds $9, levels $10, steps $11, messages $12 and fields $13. Returns the
-- jobs that their attempts held, and the error if the lines can't be stored: sql/schema/functions/logs.sql
select w.held, w.error
from reactor.write_logs($1::bigint[], $2::uuid[], $3::int[], $4::bigint[], $5::int, $6::boolean, $7::int[], $8::int[],
    $9::float8[], $10::text[], $11::text[], $12::text[], $13::jsonb[]) w
