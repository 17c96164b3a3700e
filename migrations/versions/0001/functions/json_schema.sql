-- Checks a payload by the JSON Schema of its handler's model, as pydantic generates them.
--
-- Refuses nothing that the schema accepts: keywords that are not listed here accept, and so do patterns whose meaning
-- depends on the engine, and whatever is left when the work has reached its bound. The handler's model has the last
-- word in any case. Known keywords: type, enum, const, allOf, anyOf, oneOf (as anyOf), not (of simple schemas), $ref
-- into $defs; of strings minLength, maxLength, pattern, format (date, date-time, uuid); of numbers minimum, maximum,
-- exclusiveMinimum, exclusiveMaximum, multipleOf; of arrays items, prefixItems, minItems, maxItems, uniqueItems; of
-- objects properties, patternProperties, additionalProperties, propertyNames, required, minProperties, maxProperties.
--
-- A complaint is an object with `field`, a path such as payload.rows[3].year, and `message`, which continues a sentence
-- that begins with the field. The functions call each other without a search_path of their own, which would double
-- their cost; they get that of reactor.payload_complaints, and its rights.

create or replace function reactor.is_of_type(value jsonb, type text) returns boolean
language sql immutable
return case
    when type = 'integer' then jsonb_typeof(value) = 'number'
        and case when jsonb_typeof(value) = 'number' then min_scale(value::numeric) = 0 end
    when type in ('string', 'number', 'boolean', 'object', 'array', 'null') then jsonb_typeof(value) = type
    else true end;
comment on function reactor.is_of_type is 'Whether a JSON value has a type of JSON Schema.';

create or replace function reactor.has_type_of(value jsonb, schema jsonb) returns boolean
language sql immutable
return case jsonb_typeof(schema -> 'type')
    when 'string' then reactor.is_of_type(value, schema ->> 'type')
    when 'array' then schema -> 'type' ? jsonb_typeof(value)
        or schema -> 'type' ? 'integer' and reactor.is_of_type(value, 'integer')
        or not schema -> 'type' <@ '["string", "number", "integer", "boolean", "object", "array", "null"]'
    else true end;
comment on function reactor.has_type_of is 'Whether a JSON value has the type, or one of the types, of a schema.';

create or replace function reactor.type_in_words(type jsonb) returns text
language sql immutable
return (
    select string_agg(case t.name when 'integer' then 'an integer' when 'object' then 'an object'
        when 'array' then 'an array' when 'null' then 'null' when 'boolean' then 'true or false'
        else 'a ' || t.name end, ' or ' order by t.place)
    from (
        select e.name, min(e.place) as place
        from jsonb_array_elements_text(case jsonb_typeof(type) when 'array' then type else jsonb_build_array(type) end)
            with ordinality e (name, place)
        group by e.name) t);

create or replace function reactor.complaint(field text, message text) returns jsonb
language sql immutable
return jsonb_build_array(jsonb_build_object('field', left(field, 500), 'message', message));

-- The schema that a reference leads to. What stands beside the reference holds, too. A reference that leads nowhere
-- accepts everything.
create or replace function reactor.resolve_schema(schema jsonb, root jsonb) returns jsonb
language plpgsql immutable as $$
declare
    aside jsonb;
begin
    for hop in 1 .. 20 loop
        if jsonb_typeof(schema) <> 'object' or not schema ? '$ref' then
            return schema;
        end if;
        aside := schema - '{$ref,title,description,default,examples,deprecated}'::text[];
        schema := case when schema ->> '$ref' = '#' then root
            when schema ->> '$ref' like '#/$defs/%' and schema ->> '$ref' not like '#/$defs/%/%'
                then root #> array['$defs', replace(replace(substr(schema ->> '$ref', 9), '~1', '/'), '~0', '~')] end;
        if schema is null then
            return aside;
        end if;
        if aside <> '{}' then
            return jsonb_build_object('allOf', jsonb_build_array(schema, aside));
        end if;
    end loop;
    return 'true';
end
$$;
comment on function reactor.resolve_schema is 'The schema that a $ref leads to.';

-- NULL where engines may differ. They agree about ASCII texts without control characters and patterns of literals,
-- classes, groups and quantifiers. A counted group is not among them: its expansion may be very large.
create or replace function reactor.matches(value text, pattern text) returns boolean
language plpgsql immutable as $$
begin
    if octet_length(pattern) > 500 or value !~ '^[ -~]*$' or pattern ~ '\)\{|\}\{'
        or pattern !~ ('^\^?(?:[]A-Za-z0-9 _,:;/@#%&=!<>~"''-]|\.|\\[dws.^$|?*+(){}/\[\]\\-]'
            || '|\[\^?(?:[A-Za-z0-9 _.,:;/@#%&=!<>~"''+*?()$|{}-]|\\[dws.^$|?*+(){}/\[\]\\-])+\]'
            || '|\((?:\?:)?|\)|\||[*+?]\??|\{[0-9]{1,2}(?:,[0-9]{0,2})?\})*\$?$')
    then
        return null;
    end if;
    return value ~ pattern;
exception when others then  -- the engine refuses the pattern
    return null;
end
$$;
comment on function reactor.matches is 'Whether a text matches a pattern of JSON Schema; NULL if that is not certain.';

-- What is wrong with a text by its format, or NULL. pydantic reads more than the formats: times without seconds, dates
-- with a time of midnight, numbers of seconds, UUIDs in other notations.
create or replace function reactor.format_complaint(value text, format text) returns text
language plpgsql immutable as $$
declare
    parts text[];
begin
    case format
        when 'uuid' then
            return case when value !~ '^(urn:uuid:)?\{?[0-9a-fA-F-]{32,36}\}?$' then 'must be a UUID' end;
        when 'date', 'date-time' then
            if value !~ '[0-9]' then
                return case format when 'date' then 'must be a date, as in 2026-01-31'
                    else 'must be a time, as in 2026-01-31T08:00:00Z' end;
            end if;
            parts := regexp_match(value, '^([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])');
            return case
                when parts is null or parts[1] = '0000' then null
                when parts[2]::int not between 1 and 12 then 'has a month that does not exist'
                when parts[3]::int not between 1 and date_part('day',
                        make_date(parts[1]::int, parts[2]::int, 1) + interval '1 month' - interval '1 day')
                    then 'has a day that does not exist' end;
        else
            return null;
    end case;
end
$$;

-- What is wrong with a number, or NULL. A difference that a double precision number can't hold is none: the handler
-- gets such a number.
create or replace function reactor.number_complaint(value numeric, schema jsonb) returns text
language plpgsql immutable as $$
declare
    bound numeric;
    rest numeric;
begin
    if schema ? 'minimum' then
        bound := schema -> 'minimum';
        if value < bound - abs(bound) * 1e-15 then
            return 'must be at least ' || left(bound::text, 50);
        end if;
    end if;
    if schema ? 'maximum' then
        bound := schema -> 'maximum';
        if value > bound + abs(bound) * 1e-15 then
            return 'must be at most ' || left(bound::text, 50);
        end if;
    end if;
    if schema ? 'exclusiveMinimum' and value <= (schema -> 'exclusiveMinimum')::numeric then
        return 'must be greater than ' || left(schema ->> 'exclusiveMinimum', 50);
    end if;
    if schema ? 'exclusiveMaximum' and value >= (schema -> 'exclusiveMaximum')::numeric then
        return 'must be less than ' || left(schema ->> 'exclusiveMaximum', 50);
    end if;
    -- The division of a number of 100,000 digits would take long.
    if schema ? 'multipleOf' and abs(value) < 1e15 and min_scale(value) <= 30 then
        bound := schema -> 'multipleOf';
        if bound > 0 then
            rest := abs(value) % bound;
            if least(rest, bound - rest) > abs(value) * 1e-9 then
                return 'must be a multiple of ' || left(bound::text, 50);
            end if;
        end if;
    end if;
    return null;
end
$$;

create or replace function reactor.text_complaint(value text, schema jsonb) returns text
language plpgsql immutable as $$
begin
    if schema ? 'minLength' and char_length(value) < (schema -> 'minLength')::numeric then
        return format('must have at least %s characters', schema ->> 'minLength');
    end if;
    if schema ? 'maxLength' and char_length(value) > (schema -> 'maxLength')::numeric then
        return format('must have at most %s characters', schema ->> 'maxLength');
    end if;
    if schema ? 'pattern' and reactor.matches(value, schema ->> 'pattern') is false then
        return format('must match the pattern %s', left(schema ->> 'pattern', 200));
    end if;
    if schema ? 'format' then
        return reactor.format_complaint(value, schema ->> 'format');
    end if;
    return null;
end
$$;

create or replace function reactor.join_complaints(one jsonb, other jsonb) returns jsonb
language sql immutable
return case when one is null then other when other is null then one else one || other end;

-- Whether a schema says nothing but the type, and the value has it. Such elements and properties need no call.
create or replace function reactor.has_only_type_of(value jsonb, schema jsonb) returns boolean
language sql immutable
return case when jsonb_typeof(schema -> 'type') = 'string'
    then schema - '{type,title,description,default,examples,deprecated}'::text[] = '{}'
        and reactor.is_of_type(value, schema ->> 'type')
    else false end;

create or replace function reactor.element_complaints(
    value jsonb, schema jsonb, root jsonb, path text, depth int, inout budget int, out complaints jsonb)
language plpgsql immutable as $$
declare
    size constant int := jsonb_array_length(value);
    prefix constant int := coalesce(jsonb_array_length(schema -> 'prefixItems'), 0);
    items constant jsonb := reactor.resolve_schema(schema -> 'items', root);
    part record;
    inner_complaints record;
begin
    if size < (schema -> 'minItems')::numeric then
        complaints := reactor.complaint(path, format('must have at least %s elements', schema ->> 'minItems'));
    elsif size > (schema -> 'maxItems')::numeric then
        complaints := reactor.complaint(path, format('must have at most %s elements', schema ->> 'maxItems'));
    elsif schema -> 'uniqueItems' = 'true' then
        budget := budget - size / 20;
        if (select count(distinct e.element) from jsonb_array_elements(value) e (element)) < size then
            complaints := reactor.complaint(path, 'has an element twice');
        end if;
    end if;
    if prefix = 0 and (items is null or jsonb_typeof(items) = 'array') then
        return;
    end if;
    budget := budget - size / 20;
    for part in
        select e.element, e.place, p.schema
        from jsonb_array_elements(value) with ordinality e (element, place)
        cross join lateral (select case when e.place <= prefix then schema -> 'prefixItems' -> (e.place::int - 1)
            else items end) p (schema)
        where p.schema is not null and not reactor.has_only_type_of(e.element, p.schema)
    loop
        inner_complaints := reactor.value_complaints(part.element, part.schema, root,
            format('%s[%s]', path, part.place - 1), depth + 1, budget);
        budget := inner_complaints.budget;
        complaints := reactor.join_complaints(complaints, inner_complaints.complaints);
        exit when budget < 0 or jsonb_array_length(complaints) >= 10;
    end loop;
end
$$;
comment on function reactor.element_complaints is 'What is wrong with an array and its elements.';

create or replace function reactor.member_complaints(
    value jsonb, schema jsonb, root jsonb, path text, depth int, inout budget int, out complaints jsonb)
language plpgsql immutable as $$
declare
    properties constant jsonb := schema -> 'properties';
    size int;
    part record;
    inner_complaints record;
begin
    if schema ?| '{minProperties,maxProperties}' then
        size := (select count(*) from jsonb_object_keys(value));
        complaints := case
            when size < (schema -> 'minProperties')::numeric
                then reactor.complaint(path, format('must have at least %s fields', schema ->> 'minProperties'))
            when size > (schema -> 'maxProperties')::numeric
                then reactor.complaint(path, format('must have at most %s fields', schema ->> 'maxProperties')) end;
    end if;
    if schema ? 'required' then
        for part in
            select r.key from jsonb_array_elements_text(schema -> 'required') r (key) where not value ? r.key limit 10
        loop
            complaints := reactor.join_complaints(complaints,
                reactor.complaint(path || '.' || left(part.key, 100), 'is required'));
        end loop;
    end if;
    for part in
        select v.key, v.value as member, properties -> v.key as schema
        from jsonb_each(value) v
        where properties ? v.key and not reactor.has_only_type_of(v.value, properties -> v.key)
    loop
        inner_complaints := reactor.value_complaints(part.member, part.schema, root,
            path || '.' || left(part.key, 100), depth + 1, budget);
        budget := inner_complaints.budget;
        complaints := reactor.join_complaints(complaints, inner_complaints.complaints);
        exit when budget < 0 or jsonb_array_length(complaints) >= 10;
    end loop;
    if not schema ?| '{additionalProperties,patternProperties,propertyNames}' then
        return;
    end if;
    for part in
        select v.key, v.value as member, schema -> 'additionalProperties' as schema
        from jsonb_each(value) v
        where schema ? 'additionalProperties' and properties ? v.key is not true
            and not reactor.has_only_type_of(v.value, schema -> 'additionalProperties')
            and not exists (
                select from jsonb_each(schema -> 'patternProperties') p
                where reactor.matches(v.key, p.key) is not false)
        union all
        select v.key, v.value, p.value
        from jsonb_each(value) v cross join jsonb_each(schema -> 'patternProperties') p
        where reactor.matches(v.key, p.key)
        union all
        select v.key, to_jsonb(v.key), schema -> 'propertyNames' from jsonb_each(value) v where schema ? 'propertyNames'
    loop
        exit when budget < 0 or jsonb_array_length(complaints) >= 10;
        if part.schema = 'false' then
            complaints := reactor.join_complaints(complaints,
                reactor.complaint(path || '.' || left(part.key, 100), 'is not a known field'));
            continue;
        end if;
        inner_complaints := reactor.value_complaints(part.member, part.schema, root,
            path || '.' || left(part.key, 100), depth + 1, budget);
        budget := inner_complaints.budget;
        complaints := reactor.join_complaints(complaints, inner_complaints.complaints);
    end loop;
end
$$;
comment on function reactor.member_complaints is 'What is wrong with an object and its members.';

-- What is wrong with a value of which one of several schemas must hold. The complaint is that of the only branch for a
-- value of its type, or names the types. A discriminator selects the branch.
create or replace function reactor.union_complaints(
    value jsonb, branches jsonb, discriminator jsonb, root jsonb, path text, depth int, inout budget int,
    out complaints jsonb)
language plpgsql immutable as $$
declare
    tag text := case when jsonb_typeof(value) = 'object' then value ->> (discriminator ->> 'propertyName') end;
    branch jsonb;
    types jsonb := '[]';
    near int := 0;
    inner_complaints record;
begin
    if discriminator -> 'mapping' ? tag then
        branches := jsonb_build_array(jsonb_build_object('$ref', discriminator -> 'mapping' -> tag));
    end if;
    for branch in select reactor.resolve_schema(b.branch, root) from jsonb_array_elements(branches) b (branch) loop
        if not reactor.has_type_of(value, branch) then
            types := types || (branch -> 'type');
            continue;
        end if;
        inner_complaints := reactor.value_complaints(value, branch, root, path, depth + 1, budget);
        budget := inner_complaints.budget;
        if inner_complaints.complaints is null then
            complaints := null;
            return;
        end if;
        near := near + 1;
        complaints := inner_complaints.complaints;
    end loop;
    if near = 0 then
        complaints := reactor.complaint(path, 'must be ' || coalesce(reactor.type_in_words(types), 'something else'));
    elsif near > 1 and discriminator ? 'mapping' then
        complaints := reactor.complaint(path || '.' || left(discriminator ->> 'propertyName', 100),
            case when tag is null then 'is required' else 'must be one of ' || left((
                select string_agg(to_jsonb(m.tag)::text, ', ' order by m.tag)
                from jsonb_object_keys(discriminator -> 'mapping') m (tag)), 300) end);
    elsif near > 1 then
        complaints := reactor.complaint(path, 'has none of the allowed forms');
    end if;
end
$$;
comment on function reactor.union_complaints is 'What is wrong with a value that must have one of several forms.';

-- `budget` limits the work: calls of this function, or about as long for other things. It is returned, and negative
-- when it is used up.
create or replace function reactor.value_complaints(
    value jsonb, schema jsonb, root jsonb, path text, depth int, inout budget int, out complaints jsonb)
language plpgsql immutable as $$
declare
    keyword text;
    message text;
    branch jsonb;
    inner_complaints record;
begin
    budget := budget - 1;
    if budget < 0 or depth > 60 then
        return;
    end if;
    if schema ? '$ref' then
        schema := reactor.resolve_schema(schema, root);
    end if;
    if jsonb_typeof(schema) <> 'object' then
        complaints := case when schema = 'false' then reactor.complaint(path, 'is not allowed') end;
        return;
    end if;

    if not reactor.has_type_of(value, schema) then
        message := 'must be ' || reactor.type_in_words(schema -> 'type');
    elsif schema ? 'const' and value <> schema -> 'const' then
        message := 'must be ' || left((schema -> 'const')::text, 200);
    elsif schema ? 'enum' then
        budget := budget - jsonb_array_length(schema -> 'enum') / 100;
        if not exists (select from jsonb_array_elements(schema -> 'enum') e (member) where e.member = value) then
            message := 'must be one of ' || left(
                (select string_agg(e.member::text, ', ' order by e.place)
                from jsonb_array_elements(schema -> 'enum') with ordinality e (member, place)), 300);
        end if;
    end if;
    if message is not null then
        complaints := reactor.complaint(path, message);
        return;
    end if;

    case jsonb_typeof(value)
        when 'number' then
            message := reactor.number_complaint(value::numeric, schema);
        when 'string' then
            message := reactor.text_complaint(value #>> '{}', schema);
        when 'array' then
            inner_complaints := reactor.element_complaints(value, schema, root, path, depth, budget);
            budget := inner_complaints.budget;
            complaints := inner_complaints.complaints;
        when 'object' then
            inner_complaints := reactor.member_complaints(value, schema, root, path, depth, budget);
            budget := inner_complaints.budget;
            complaints := inner_complaints.complaints;
        else null;
    end case;
    if message is not null then
        complaints := reactor.complaint(path, message);
    end if;
    if complaints is not null then
        return;
    end if;

    if schema ? 'allOf' then
        for branch in select b.branch from jsonb_array_elements(schema -> 'allOf') b (branch) loop
            inner_complaints := reactor.value_complaints(value, branch, root, path, depth + 1, budget);
            budget := inner_complaints.budget;
            complaints := reactor.join_complaints(complaints, inner_complaints.complaints);
        end loop;
    end if;
    foreach keyword in array '{anyOf,oneOf}'::text[] loop
        if complaints is null and schema ? keyword then
            inner_complaints := reactor.union_complaints(value, schema -> keyword, schema -> 'discriminator', root,
                path, depth, budget);
            budget := inner_complaints.budget;
            complaints := inner_complaints.complaints;
        end if;
    end loop;
    -- Only of schemas that are decided exactly, without a keyword that accepts in case of doubt.
    if complaints is null and schema ? 'not' and jsonb_typeof(schema -> 'not') = 'object'
        and (schema -> 'not') - '{title,description,type,const,enum,required,minLength,maxLength}'::text[] = '{}'
    then
        inner_complaints := reactor.value_complaints(value, schema -> 'not', root, path, depth + 1, budget);
        budget := inner_complaints.budget;
        if inner_complaints.complaints is null and budget >= 0 and depth < 60 then
            complaints := reactor.complaint(path, 'has a form that is not allowed');
        end if;
    end if;
end
$$;
comment on function reactor.value_complaints is 'What is wrong with a JSON value by a JSON Schema.';

-- The bound of the work is about half a second. A schema that can't be evaluated accepts.
create or replace function reactor.payload_complaints(payload jsonb, schema jsonb) returns jsonb
language plpgsql immutable security definer set search_path = pg_catalog, pg_temp as $$
declare
    root constant jsonb := schema #> '{}';  -- decompressed once
begin
    return (reactor.value_complaints(payload, root, root, 'payload', 0, 20000)).complaints;
exception when others then
    return null;
end
$$;
comment on function reactor.payload_complaints is
    'What is wrong with a payload by a JSON Schema: an array of objects with field and message, or NULL.';
