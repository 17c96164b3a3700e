-- While draining ($1) no pod takes a job. Returns whether it was so before.
with before as materialized (
    select s.the_only_row, s.draining from reactor.settings s for no key update
)
update reactor.settings s set draining = $1::boolean
from before b where b.the_only_row = s.the_only_row
returning b.draining as was
