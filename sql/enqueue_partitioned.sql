-- walpost.enqueue() for the partitioned outbox (outbox_partitioned.sql): inserts one event in the caller's transaction and
-- returns its id.
--
--     select walpost.enqueue('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}');
--     select walpost.enqueue('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}', idempotency_key => 'place-o-812');
--
-- With an idempotency key that an earlier event carries it inserts nothing and returns that event's id, also when two
-- sessions use the key at the same time: the later one waits for the earlier to commit or roll back. (At REPEATABLE
-- READ or above it may fail with serialization_failure instead, as any insert there.) A key is known for as long as
-- its row in walpost.idempotency is kept. The function runs with the caller's rights; role walpost_enqueue (roles.sql)
-- has just enough.

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
    event       uuid := gen_random_uuid();
    first_event uuid;
begin
    if enqueue.idempotency_key is not null then
        -- A second round is needed only when the other event's key goes away between the two statements.
        for round in 1 .. 10 loop
            insert into walpost.idempotency as i (key, event_id)
            values (enqueue.idempotency_key, event)
            on conflict (key) do nothing;
            exit when found;

            select i.event_id into first_event from walpost.idempotency as i where i.key = enqueue.idempotency_key;
            if found then
                return first_event;
            end if;

            if round = 10 then
                raise exception 'the event that carries this idempotency key cannot be read'
                    using errcode = 'serialization_failure',
                          hint = 'Retry the transaction; if it happens again, look at the row security policies of the outbox.';
            end if;
        end loop;
    end if;

    insert into walpost.outbox
        (id, aggregate_type, aggregate_id, event_type, payload, headers, destination, idempotency_key, occurred_at)
    values
        (event, enqueue.aggregate_type, enqueue.aggregate_id, enqueue.event_type, enqueue.payload, enqueue.headers,
         enqueue.destination, enqueue.idempotency_key, coalesce(enqueue.occurred_at, clock_timestamp()));
    return event;
end
$walpost$;

comment on function walpost.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz)
    is 'Inserts an event into the outbox; the same idempotency key inserts once and returns the first id';
