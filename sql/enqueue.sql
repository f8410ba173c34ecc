-- walpost.enqueue(): inserts one event in the caller's transaction and returns its id.
--
--     select walpost.enqueue('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}');
--     select walpost.enqueue('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}', idempotency_key => 'place-o-812');
--
-- With an idempotency key that an earlier event carries it inserts nothing and returns that event's id, also when two
-- sessions use the key at the same time: the later one waits for the earlier to commit or roll back. (At REPEATABLE
-- READ or above it may fail with serialization_failure instead, as any insert there.) A key is known for as long as
-- its row is kept. The function runs with the caller's rights; role walpost_enqueue (roles.sql) has just enough.
--
-- aggregate_version, where given, says which event of its aggregate this is: the version that the caller read, and one. Of two
-- callers that read the same one is too late and fails with unique_violation; it reads anew and decides again (optimistic
-- concurrency).

create or replace function walpost.enqueue(
    aggregate_type    text,
    aggregate_id      text,
    event_type        text,
    payload           jsonb,
    headers           jsonb       default null,
    idempotency_key   text        default null,
    destination       text        default null,
    occurred_at       timestamptz default null,
    aggregate_version bigint      default null
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
#variable_conflict use_column
declare
    event uuid;
begin
    if enqueue.idempotency_key = '' then
        raise exception 'the idempotency key is empty: all events with such a key would be one'
            using errcode = 'invalid_parameter_value', hint = 'Leave it out, or give a key that is this event''s own.';
    end if;
    -- A second round is needed only when the other event's row goes away between the two statements. With a key, a version
    -- that exists takes all the rounds: the caller's role may not read versions to tell it apart, and a round writes no row.
    for round in 1 .. 10 loop
        insert into walpost.outbox as o
            (aggregate_type, aggregate_id, event_type, payload, headers, destination, idempotency_key, occurred_at,
             aggregate_version)
        values
            (enqueue.aggregate_type, enqueue.aggregate_id, enqueue.event_type, enqueue.payload, enqueue.headers,
             enqueue.destination, enqueue.idempotency_key, coalesce(enqueue.occurred_at, clock_timestamp()),
             enqueue.aggregate_version)
        -- With the key alone named here, two callers at once would fail by the version that both give.
        on conflict do nothing
        returning o.id into event;
        if found then
            return event;
        end if;

        exit when enqueue.idempotency_key is null;
        select o.id into event from walpost.outbox as o where o.idempotency_key = enqueue.idempotency_key;
        if found then
            return event;
        end if;
    end loop;
    if enqueue.aggregate_version is not null then
        raise exception 'version % of % % exists already', enqueue.aggregate_version, enqueue.aggregate_type, enqueue.aggregate_id
            using errcode = 'unique_violation', hint = 'Read the aggregate anew, and try again with the version that follows.';
    end if;
    if enqueue.idempotency_key is null then
        raise exception 'another event has what is unique in the outbox' using errcode = 'unique_violation';
    end if;
    raise exception 'the event that carries this idempotency key cannot be read'
        using errcode = 'serialization_failure',
              hint = 'Retry the transaction; if it happens again, look at the row security policies of the outbox.';
end
$walpost$;

-- The function as an earlier version made it gives way, and who might call it may call this one. Where an application is
-- calling it, run this file in one transaction: until then a call with few arguments may be meant for either.
do $walpost$
declare
    former  constant regprocedure := to_regprocedure('walpost.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz)');
    present constant regprocedure := 'walpost.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz, bigint)';
    caller  text;
begin
    if former is null then
        return;
    end if;
    if (select proacl from pg_catalog.pg_proc where oid = former) is not null then
        execute format('revoke execute on function %s from public', present);
        for caller in
            select case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
            from pg_catalog.pg_proc, aclexplode(proacl) a where pg_proc.oid = former
        loop
            execute format('grant execute on function %s to %s', present, caller);
        end loop;
    end if;
    execute format('drop function %s', former);
end
$walpost$;

comment on function walpost.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz, bigint)
    is 'Inserts an event into the outbox; the same idempotency key inserts once and returns the first id';
