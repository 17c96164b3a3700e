-- One job or many, as a JSON array of reactor.submit's arguments: one parameter, so that it reads the same for every
-- driver. Joins the caller's transaction.
select id, pipeline_id, outcome from reactor.submit_many(cast($1 as jsonb)) order by place
