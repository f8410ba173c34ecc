-- walpost.enqueue(): inserts one event in the caller's transaction and returns its id.
--
--     select walpost.enqueue('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}');
--     select walpost.enqueue('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}', idempotency_key => 'place-o-812');
--
-- With an idempotency key that an earlier event carries it inserts nothing and returns that event's id, also when two
-- sessions use the key at the same time: the later one waits for the earlier to commit or roll back. (At REPEATABLE
-- READ or above it may fail with serialization_failure instead, as any insert there.) A key is known for as long as
-- its row is kept. The function runs with the caller's rights; role walpost_enqueue (roles.sql) has just enough.

create or replace function walpost.enqueue(
    aggregate_type  text,
    aggregate_id    text,
    event_type      text,
    payload         jsonb,
    headers         jsonb       default null,
    idempotency_key text        default null,
    destination     text        default null,
    occurred_at     timestamptz default null
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
#variable_conflict use_column
declare
    event uuid;
begin
    -- A second round is needed only when the other event's row goes away between the two statements.
    for round in 1 .. 10 loop
        insert into walpost.outbox as o
            (aggregate_type, aggregate_id, event_type, payload, headers, destination, idempotency_key, occurred_at)
        values
            (enqueue.aggregate_type, enqueue.aggregate_id, enqueue.event_type, enqueue.payload, enqueue.headers,
             enqueue.destination, enqueue.idempotency_key, coalesce(enqueue.occurred_at, clock_timestamp()))
        on conflict (idempotency_key) do nothing
        returning o.id into event;
        if found then
            return event;
        end if;

        select o.id into event from walpost.outbox as o where o.idempotency_key = enqueue.idempotency_key;
        if found then
            return event;
        end if;
    end loop;
    raise exception 'the event that carries this idempotency key cannot be read'
        using errcode = 'serialization_failure',
              hint = 'Retry the transaction; if it happens again, look at the row security policies of the outbox.';
end
$walpost$;

comment on function walpost.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz)
    is 'Inserts an event into the outbox; the same idempotency key inserts once and returns the first id';
