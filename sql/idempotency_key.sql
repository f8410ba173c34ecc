-- walpost.idempotency_key(): the same key for the same document, in any language: SHA-256, as 64 hexadecimal digits, of its
-- canonical JSON in UTF-8.
--
--     select walpost.enqueue('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}',
--                            idempotency_key => walpost.idempotency_key('{"command": "place", "order": "o-812"}'));
--
-- Canonical JSON has the members of objects sorted by code point, no white space, and characters as they are, but for control
-- characters, quotes and backslashes, which are escaped as PostgreSQL does. It is what Python prints by
-- json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False), but that numbers are as jsonb prints them:
-- 1e+16 is 10000000000000000. Arrays and objects may be nested 100 levels deep. NULL has no key.

do $walpost$
begin
    if to_regnamespace('walpost') is null then
        create schema walpost;
    end if;
end
$walpost$;

create or replace function walpost.idempotency_key(document jsonb) returns text
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $walpost$
declare
    depth_max constant integer := 100;
    depth     integer;
    canonical text;
begin
    -- Each value has its place among those beside it, below the places of what it is in; a closing bracket has the last.
    with recursive node (path, lead, value) as (
        select '{}'::integer[], ''::text, document
        union all
        select node.path || inner_value.place::integer,
               case inner_value.place when 1 then '' else ',' end || inner_value.name, inner_value.value
        from node, lateral (
            select row_number() over (order by convert_to(key, 'UTF8')) as place, to_jsonb(key)::text || ':' as name, value
            from jsonb_each(case jsonb_typeof(node.value) when 'object' then node.value else '{}' end)
            union all
            select ordinality, '', value
            from jsonb_array_elements(case jsonb_typeof(node.value) when 'array' then node.value else '[]' end)
                 with ordinality
        ) as inner_value
        where cardinality(node.path) < depth_max
    ), piece (path, text) as (
        select path, lead || case jsonb_typeof(value) when 'object' then '{' when 'array' then '[' else value::text end
        from node
        union all
        select path || 2147483647, case jsonb_typeof(value) when 'object' then '}' else ']' end
        from node where jsonb_typeof(value) in ('object', 'array')
    )
    select string_agg(text, '' order by path), max(cardinality(path)) into canonical, depth from piece;
    if depth > depth_max then
        raise exception 'the document is nested deeper than % levels', depth_max
            using errcode = 'program_limit_exceeded', hint = 'Make the key from the part that tells one request from another.';
    end if;
    return encode(sha256(convert_to(canonical, 'UTF8')), 'hex');
end
$walpost$;

comment on function walpost.idempotency_key(jsonb) is 'SHA-256 of canonical JSON, as 64 hexadecimal digits: a key for enqueue()';
