-- The outbox: one row is one event. Insert it in the transaction that changes your own tables, by plain INSERT or by
-- walpost.enqueue() (enqueue.sql); walpost reads the insert from the write-ahead log once that transaction commits.
--
-- Run it as often as you like: what exists is left as it is. For a table that is partitioned by day, use
-- outbox_partitioned.sql instead. Next: txid.sql, enqueue.sql, publication.sql, roles.sql.

do $walpost$
begin
    -- Not CREATE SCHEMA IF NOT EXISTS, which asks for the right to make one even where there is nothing to make.
    if to_regnamespace('walpost') is null then
        create schema walpost;
    end if;
end
$walpost$;

create table if not exists walpost.outbox (
    id                uuid        primary key default gen_random_uuid(),
    seq               bigint      not null generated always as identity,
    aggregate_type    text        not null,
    aggregate_id      text,
    event_type        text        not null,
    payload           jsonb,
    headers           jsonb       constraint outbox_headers_is_an_object check (jsonb_typeof(headers) = 'object'),
    destination       text,
    idempotency_key   text        unique,
    occurred_at       timestamptz not null default clock_timestamp(),
    txid              xid8        not null default pg_current_xact_id(),
    aggregate_version bigint
);

-- A table that an earlier version made has no versions yet. For the lock that the column needs this waits two seconds at most.
do $walpost$
begin
    if not exists (select from pg_catalog.pg_attribute
                   where attrelid = 'walpost.outbox'::regclass and attname = 'aggregate_version') then
        perform set_config('lock_timeout', '2s', true);
        alter table walpost.outbox add column aggregate_version bigint;
    end if;
end
$walpost$;

-- One event a version. Nobody inserts while it is made, so setup makes it concurrently where there are rows.
do $walpost$
begin
    if not exists (select from pg_catalog.pg_index join pg_catalog.pg_attribute a on attrelid = indrelid and attnum = any (indkey)
                   where indrelid = 'walpost.outbox'::regclass and indisunique and indisvalid and attname = 'aggregate_version') then
        create unique index on walpost.outbox (aggregate_type, aggregate_id, aggregate_version)
            where aggregate_version is not null;
    end if;
end
$walpost$;

comment on table  walpost.outbox                   is 'Transactional outbox: walpost sends each inserted row, in commit order';
comment on column walpost.outbox.id                is 'Identity of the event; header id of the record';
comment on column walpost.outbox.seq               is 'Order of insertion. Not the order of commits: never use it as a high-water mark';
comment on column walpost.outbox.aggregate_type    is 'Kind of thing the event is about; names the topic unless destination does';
comment on column walpost.outbox.aggregate_id      is 'Which thing; key of the record, so that its events stay in order. NULL: no key, no order';
comment on column walpost.outbox.event_type        is 'What happened; header event_type';
comment on column walpost.outbox.payload           is 'Value of the record. SQL NULL sends a tombstone';
comment on column walpost.outbox.headers           is 'JSON object; each member becomes a header of the record';
comment on column walpost.outbox.destination       is 'Where this event goes, when the usual place is not wanted: topic, routing key or URL';
comment on column walpost.outbox.idempotency_key   is 'The same key is stored once; see enqueue()';
comment on column walpost.outbox.occurred_at       is 'When it happened; header occurred_at';
comment on column walpost.outbox.txid              is 'The inserting transaction; proves later that the row is published. Leave it to its default';
comment on column walpost.outbox.aggregate_version is 'Which event of its aggregate, counted by the application: each number once. Header aggregate_version';
