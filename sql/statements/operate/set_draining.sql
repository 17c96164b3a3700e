-- Turns draining on or off ($1); while it is on, pods claim no jobs. Returns the previous value.
with before as materialized (
    select s.the_only_row, s.draining from reactor.settings s for no key update
)
update reactor.settings s set draining = $1::boolean
from before b where b.the_only_row = s.the_only_row
returning b.draining as was
