-- walpost.emit(): sends one event in the caller's transaction as a logical message, and returns its id. There is no table: the
-- event is in the log alone, and comes to Kafka with its transaction or not at all.
--
--     select walpost.emit('order', 'o-812', 'OrderPlaced', '{"total": "12.50"}');
--     select walpost.emit_bytes('order', 'o-812', 'OrderPlaced', '\x0a0568656c6c6f');
--
-- The configuration says message_prefix = 'outbox'. A prefix that it does not name is nobody's: such a message is lost. SQL
-- NULL as payload sends a tombstone. An idempotency key is a header of the record and no more: nothing remembers it here.
-- The functions run with the caller's rights; role walpost_enqueue (roles.sql) has just enough.

do $walpost$
begin
    -- Not CREATE SCHEMA IF NOT EXISTS, which asks for the right to make one even where there is nothing to make.
    if to_regnamespace('walpost') is null then
        create schema walpost;
    end if;
end
$walpost$;

create or replace function walpost.emit(
    aggregate_type  text,
    aggregate_id    text,
    event_type      text,
    payload         jsonb,
    headers         jsonb       default null,
    idempotency_key text        default null,
    destination     text        default null,
    occurred_at     timestamptz default null,
    prefix          text        default 'outbox'
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
declare
    event uuid := gen_random_uuid();
begin
    -- As the columns of the outbox have it.
    if aggregate_type is null or event_type is null or prefix is null then
        raise exception 'aggregate_type, event_type and prefix of an event must not be null'
            using errcode = 'not_null_violation';
    end if;
    if jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers of an event must be an object' using errcode = 'check_violation';
    end if;
    -- The log's readers get the bytes as they are.
    perform pg_logical_emit_message(true, prefix, convert_to((
        select jsonb_object_agg(member, value)::text
        from (values
            ('id',              to_jsonb(event)),
            ('aggregate_type',  to_jsonb(emit.aggregate_type)),
            ('aggregate_id',    to_jsonb(emit.aggregate_id)),
            ('event_type',      to_jsonb(emit.event_type)),
            ('payload',         emit.payload),
            ('headers',         emit.headers),
            ('destination',     to_jsonb(emit.destination)),
            ('idempotency_key', to_jsonb(emit.idempotency_key)),
            ('occurred_at',     to_jsonb(coalesce(emit.occurred_at, clock_timestamp())))
        ) as said(member, value)
        where value is not null), 'UTF8'));
    return event;
end
$walpost$;

comment on function walpost.emit(text, text, text, jsonb, jsonb, text, text, timestamptz, text)
    is 'Sends an event as a logical message, with the caller''s transaction; returns its id';

create or replace function walpost.emit_bytes(
    aggregate_type  text,
    aggregate_id    text,
    event_type      text,
    payload         bytea,
    headers         jsonb       default null,
    idempotency_key text        default null,
    destination     text        default null,
    occurred_at     timestamptz default null,
    prefix          text        default 'outbox'
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
declare
    event uuid := gen_random_uuid();
begin
    if aggregate_type is null or event_type is null or prefix is null then
        raise exception 'aggregate_type, event_type and prefix of an event must not be null'
            using errcode = 'not_null_violation';
    end if;
    if jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers of an event must be an object' using errcode = 'check_violation';
    end if;
    perform pg_logical_emit_message(true, prefix, convert_to((
        select jsonb_object_agg(member, value)::text
        from (values
            ('id',              to_jsonb(event)),
            ('aggregate_type',  to_jsonb(emit_bytes.aggregate_type)),
            ('aggregate_id',    to_jsonb(emit_bytes.aggregate_id)),
            ('event_type',      to_jsonb(emit_bytes.event_type)),
            ('payload_base64',  to_jsonb(encode(emit_bytes.payload, 'base64'))),
            ('headers',         emit_bytes.headers),
            ('destination',     to_jsonb(emit_bytes.destination)),
            ('idempotency_key', to_jsonb(emit_bytes.idempotency_key)),
            ('occurred_at',     to_jsonb(coalesce(emit_bytes.occurred_at, clock_timestamp())))
        ) as said(member, value)
        where value is not null), 'UTF8'));
    return event;
end
$walpost$;

comment on function walpost.emit_bytes(text, text, text, bytea, jsonb, text, text, timestamptz, text)
    is 'Sends an event whose payload is bytes as a logical message, with the caller''s transaction; returns its id';
