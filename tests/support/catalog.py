"""What a schema and its database hold, to compare two of them."""

from reactor.database.connection import Connection

# Everything that a schema can hold, as rows (kind, name, definition). The functions pg_get_*def return most of what DDL
# can say; catalog columns are listed for the rest. An acl is null where nothing was granted or revoked.
CATALOG = """
with ours as (select 'reactor'::regnamespace as oid)
select kind, name, definition::text from (
select 'schema' as kind, nspname::text as name, jsonb_build_array(pg_get_userbyid(nspowner), nspacl::text,
    obj_description(n.oid, 'pg_namespace')) as definition
from pg_namespace n, ours where n.oid = ours.oid
union all
select 'relation ' || relkind::text, c.oid::regclass::text, jsonb_build_array(pg_get_userbyid(relowner), relacl::text,
    reloptions::text, relpersistence, relreplident, relrowsecurity, relforcerowsecurity, relispartition,
    pg_get_partkeydef(c.oid), pg_get_expr(relpartbound, c.oid), (select amname from pg_am where pg_am.oid = relam),
    case when relkind in ('v', 'm') then pg_get_viewdef(c.oid)
        when relkind in ('i', 'I') then pg_get_indexdef(c.oid) end,
    obj_description(c.oid, 'pg_class'))
from pg_class c, ours where relnamespace = ours.oid
union all
select 'column', a.attrelid::regclass || '.' || attname, jsonb_build_array(attnum, format_type(atttypid, atttypmod),
    attnotnull, attidentity, attgenerated, attstorage, attcompression, attstattarget, attcollation::regcollation,
    attoptions::text, attacl::text, pg_get_expr(d.adbin, d.adrelid), col_description(attrelid, attnum))
from pg_attribute a join pg_class c on c.oid = attrelid and relkind in ('r', 'p', 'v', 'm', 'c', 'f', 'i', 'I')
left join pg_attrdef d on d.adrelid = attrelid and d.adnum = attnum, ours
where relnamespace = ours.oid and attnum > 0 and not attisdropped
union all
select 'sequence', s.seqrelid::regclass::text, jsonb_build_array(seqtypid::regtype, seqstart, seqincrement, seqmin,
    seqmax, seqcache, seqcycle, (
        select string_agg(deptype::text || ' ' || refobjid::regclass || ' ' || refobjsubid, ', ') from pg_depend
        where objid = seqrelid and refclassid = 'pg_class'::regclass))
from pg_sequence s join pg_class c on c.oid = seqrelid, ours where relnamespace = ours.oid
union all
select 'constraint', coalesce(nullif(conrelid, 0)::regclass::text, contypid::regtype::text) || '.' || conname,
    jsonb_build_array(contype, pg_get_constraintdef(c.oid), condeferrable, condeferred, convalidated,
        obj_description(c.oid, 'pg_constraint'))
from pg_constraint c, ours where connamespace = ours.oid
union all
select 'index', indexrelid::regclass::text, jsonb_build_array(indisunique, indisprimary, indisvalid, indisready,
    indisclustered, indisreplident, indimmediate)
from pg_index join pg_class c on c.oid = indrelid, ours where relnamespace = ours.oid
union all
select 'function', p.oid::regprocedure::text, jsonb_build_array(prokind, pg_get_userbyid(proowner), proacl::text,
    prosecdef,
    proleakproof, proisstrict, proretset, provolatile, proparallel, procost, prorows, proconfig::text, prosrc,
    case when prokind in ('f', 'p') then pg_get_functiondef(p.oid) end, obj_description(p.oid, 'pg_proc'))
from pg_proc p, ours where pronamespace = ours.oid
union all
select 'trigger', tgrelid::regclass || '.' || tgname, jsonb_build_array(tgenabled, tgdeferrable, tginitdeferred,
    pg_get_triggerdef(t.oid), obj_description(t.oid, 'pg_trigger'))
from pg_trigger t join pg_class c on c.oid = tgrelid, ours where relnamespace = ours.oid and not tgisinternal
union all
select 'type ' || typtype::text, format_type(t.oid, null), jsonb_build_array(pg_get_userbyid(typowner),
    typacl::text, typnotnull,
    format_type(typbasetype, typtypmod), typdefault, typcollation::regcollation, obj_description(t.oid, 'pg_type'))
from pg_type t, ours where typnamespace = ours.oid
union all
select 'enum', enumtypid::regtype || '.' || enumsortorder, to_jsonb(enumlabel)
from pg_enum join pg_type t on t.oid = enumtypid, ours where typnamespace = ours.oid
union all
select 'policy', polrelid::regclass || '.' || polname, jsonb_build_array(polcmd, polpermissive,
    polroles::regrole[]::text,
    pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
from pg_policy join pg_class c on c.oid = polrelid, ours where relnamespace = ours.oid
union all
select 'rule', ev_class::regclass || '.' || rulename, to_jsonb(pg_get_ruledef(r.oid))
from pg_rewrite r join pg_class c on c.oid = ev_class, ours where relnamespace = ours.oid
union all
select 'statistics', stxname::text, to_jsonb(pg_get_statisticsobjdef(s.oid))
from pg_statistic_ext s, ours where stxnamespace = ours.oid
union all
select 'default privileges', concat_ws(' ', defaclrole::regrole, defaclobjtype), to_jsonb(defaclacl::text)
from pg_default_acl, ours where defaclnamespace in (ours.oid, 0)
union all
select 'row of settings', '', to_jsonb(s) from reactor.settings s
) everything
order by kind, name, definition::text
"""

# What does not belong to the schema. CREATE DATABASE copies neither privileges nor settings from its template.
DATABASE = """
select jsonb_build_array(pg_encoding_to_char(encoding), datcollate, datctype, datacl::text, datdba::regrole,
    (select jsonb_agg(setconfig) from pg_db_role_setting where setdatabase = d.oid),
    (select jsonb_agg(nspname order by nspname) from pg_namespace where nspname !~ '^pg_(toast_)?temp_'),
    (select jsonb_agg(extname order by extname) from pg_extension))::text
from pg_database d where datname = current_database()
"""


async def catalog(connection: Connection) -> dict[tuple[str, str], str]:
    rows = await connection.fetch(CATALOG)
    return {(row["kind"], row["name"]): row["definition"] for row in rows}


def difference(one: dict[tuple[str, str], str], other: dict[tuple[str, str], str]) -> set[tuple[str, str]]:
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


async def everything(connection: Connection) -> dict[str, str]:
    """The catalog, the properties of the database, and all rows."""
    await connection.execute("set search_path = pg_catalog")
    found = {" ".join(key): definition for key, definition in (await catalog(connection)).items()}
    found["database"] = await connection.fetchval(DATABASE)
    for kind, name in await catalog(connection):
        if kind == "relation r":
            found[f"rows of {name}"] = await connection.fetchval(
                f"select jsonb_agg(t order by to_jsonb(t)::text)::text from {name} t"
            )
        elif kind == "relation S" and "_notified_" not in name:  # a time, and who was there
            found[f"state of {name}"] = await connection.fetchval(
                f"select (s.last_value, s.is_called)::text from {name} s"
            )
    return found
