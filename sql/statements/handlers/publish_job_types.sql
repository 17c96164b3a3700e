-- Publishes the job types that the worker $1 has handlers for ($2, an array of objects), and notes the versions of
-- their schemas in its row. Writes only rows that say something else, or that were last seen more than a minute ago.
-- Waits for no row that another transaction has locked: returns the types that it has left out, which must be published
-- again.
with given as materialized (
    select d.*, coalesce(md5(case when d.is_checked then d.payload_schema::text end), '') as version
    from jsonb_to_recordset($2::jsonb) d (name text, max_attempts int, timeout_seconds float8, delivery text,
        description text, payload_schema jsonb, is_checked boolean)
), publisher as (
    update reactor.workers w set schema_versions = array(
        select g.version from unnest(w.job_types) with ordinality t (name, place)
        left join given g on g.name = t.name order by t.place)
    where w.id = $1::uuid
    returning case when cardinality(w.queues) = 1 then w.queues[1] end as queue
), news as (
    select t.name from given g cross join publisher p join reactor.job_types t on t.name = g.name
    where (t.queue, t.max_attempts, t.timeout_seconds, t.delivery, t.description, t.payload_schema, t.is_checked)
            is distinct from (p.queue, g.max_attempts, g.timeout_seconds, g.delivery, g.description, g.payload_schema,
            g.is_checked)
        or t.last_seen_at < clock_timestamp() - interval '1 minute'
), locked as (
    select t.name from reactor.job_types t where t.name in (select n.name from news n)
    order by t.name for no key update skip locked
), updated as (
    update reactor.job_types t set
        queue = p.queue, max_attempts = g.max_attempts, timeout_seconds = g.timeout_seconds, delivery = g.delivery,
        description = g.description, payload_schema = g.payload_schema, is_checked = g.is_checked, version = g.version,
        -- A version without a schema accepts everything.
        earlier_schemas = case when t.version = g.version then t.earlier_schemas else coalesce((
            select jsonb_object_agg(e.key, e.value)
            from jsonb_each(t.earlier_schemas || jsonb_build_object(t.version,
                case when t.is_checked then coalesce(t.payload_schema, 'true') else 'true' end)) e
            where e.key <> g.version and exists (
                select from reactor.live_workers w
                where w.schema_versions[array_position(w.job_types, t.name)] = e.key)), '{}') end,
        published_at = case
            when (t.queue, t.max_attempts, t.timeout_seconds, t.delivery, t.description, t.payload_schema, t.is_checked)
                is distinct from (p.queue, g.max_attempts, g.timeout_seconds, g.delivery, g.description,
                g.payload_schema, g.is_checked) then clock_timestamp() else t.published_at end,
        last_seen_at = clock_timestamp()
    from locked l join given g on g.name = l.name cross join publisher p
    where t.name = l.name
    returning t.name
), inserted as (
    insert into reactor.job_types (name, queue, max_attempts, timeout_seconds, delivery, description, payload_schema,
        is_checked, version)
    select g.name, p.queue, g.max_attempts, g.timeout_seconds, g.delivery, g.description, g.payload_schema,
        g.is_checked, g.version
    from given g cross join publisher p
    where not exists (select from reactor.job_types t where t.name = g.name)
    order by g.name
    on conflict (name) do nothing
    returning name
)
select g.name from given g cross join publisher p
where (g.name in (select n.name from news n) or not exists (select from reactor.job_types t where t.name = g.name))
    and g.name not in (select u.name from updated u union all select i.name from inserted i)
