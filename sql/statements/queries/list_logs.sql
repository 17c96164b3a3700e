-- The lines of the job $1 between the ids $2 and $3 (both excluded), with the attempt number $5, the step $6 and one of
-- the levels $7 (NULL: any): the first $4 of them, or ($8) the last $4, in the order of their ids. Each row has the
-- job's state, and the id of its newest line of any kind. A row without an id is not a line, and no row at all means
-- that there is no such job.
with chosen as not materialized (
    select l.* from reactor.logs l
    where l.job_id = $1::bigint and l.id > $2::bigint and l.id < $3::bigint
        and ($5::int is null or l.attempt = $5) and ($6::text is null or l.step = $6)
        and ($7::text[] is null or l.level = any ($7))
), page as materialized (
    (select c.* from chosen c where not $8::boolean order by c.id limit $4::int)
    union all
    (select c.* from chosen c where $8::boolean order by c.id desc limit $4::int)
)
select p.id, p.at, p.attempt, p.attempt_id, p.number, p.level, p.step, p.message, p.fields::text as fields,
    j.state as job_state, (select max(l.id) from reactor.logs l where l.job_id = $1) as newest
from reactor.jobs j left join page p on true
where j.id = $1
order by p.id
