-- The outbox, partitioned by day: old days leave by DETACH and DROP instead of DELETE and VACUUM.
--
-- Use this instead of outbox.sql, then txid.sql, and enqueue_partitioned.sql instead of enqueue.sql. Call walpost.make_partitions()
-- daily (cron, pg_cron): it makes today's partition and the next seven. Rows of a day without a partition land in
-- the default partition, so that a forgotten call never fails the application's inserts.

do $walpost$
begin
    -- Not CREATE SCHEMA IF NOT EXISTS, which asks for the right to make one even where there is nothing to make.
    if to_regnamespace('walpost') is null then
        create schema walpost;
    end if;
end
$walpost$;

-- A partitioned table's primary key must hold the partition key, and so must every unique constraint: idempotency
-- keys live in a table of their own, and so do the versions of aggregates.
create table if not exists walpost.outbox (
    id                uuid        not null default gen_random_uuid(),
    seq               bigint      not null generated always as identity,
    aggregate_type    text        not null,
    aggregate_id      text,
    event_type        text        not null,
    payload           jsonb,
    headers           jsonb       constraint outbox_headers_is_an_object check (jsonb_typeof(headers) = 'object'),
    destination       text,
    idempotency_key   text,
    occurred_at       timestamptz not null default clock_timestamp(),
    txid              xid8        not null default pg_current_xact_id(),
    aggregate_version bigint,
    primary key (id, occurred_at)
) partition by range (occurred_at);

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

comment on table  walpost.outbox                   is 'Transactional outbox: walpost sends each inserted row, in commit order';
comment on column walpost.outbox.id                is 'Identity of the event; header id of the record';
comment on column walpost.outbox.seq               is 'Order of insertion. Not the order of commits: never use it as a high-water mark';
comment on column walpost.outbox.aggregate_type    is 'Kind of thing the event is about; names the topic unless destination does';
comment on column walpost.outbox.aggregate_id      is 'Which thing; key of the record, so that its events stay in order. NULL: no key, no order';
comment on column walpost.outbox.event_type        is 'What happened; header event_type';
comment on column walpost.outbox.payload           is 'Value of the record. SQL NULL sends a tombstone';
comment on column walpost.outbox.headers           is 'JSON object; each member becomes a header of the record';
comment on column walpost.outbox.destination       is 'Where this event goes, when the usual place is not wanted: topic, routing key or URL';
comment on column walpost.outbox.idempotency_key   is 'Copied to the record; uniqueness is kept by table idempotency, see enqueue()';
comment on column walpost.outbox.occurred_at       is 'When it happened; header occurred_at; chooses the partition';
comment on column walpost.outbox.txid              is 'The inserting transaction; proves later that the row is published. Leave it to its default';
comment on column walpost.outbox.aggregate_version is 'Which event of its aggregate, counted by the application. Header aggregate_version; each number once by enqueue()';

create table if not exists walpost.idempotency (
    key        text        primary key,
    event_id   uuid        not null,
    created_at timestamptz not null default clock_timestamp()
);

comment on table walpost.idempotency is 'Which event each idempotency key stands for; written by enqueue()';

create table if not exists walpost.aggregate_version (
    aggregate_type text   not null,
    aggregate_id   text   not null,
    version        bigint not null,
    event_id       uuid   not null,
    primary key (aggregate_type, aggregate_id, version)
);

comment on table walpost.aggregate_version is 'Which event each version of an aggregate is; written by enqueue()';

-- Makes the partitions of `days` days (UTC) from first_day on; returns how many it made. What exists is left alone.
-- A new partition is attached rather than created in place: that locks neither readers nor writers of the outbox, only
-- the default partition, and for that it waits two seconds at most. A day of which the default partition already holds
-- rows is passed over: moving rows would publish them again.
create or replace function walpost.make_partitions(
    first_day date    default (now() at time zone 'UTC')::date,
    days      integer default 8
) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set lock_timeout = '2s'
as $walpost$
declare
    outbox    constant regclass := 'walpost.outbox'::regclass;
    in_schema constant name     := (select nspname from pg_class join pg_namespace n on n.oid = relnamespace
                                    where pg_class.oid = outbox);
    stem      constant name     := (select relname from pg_class where oid = outbox);
    day       date;
    leaf      text;
    made      integer := 0;
begin
    if octet_length(stem) > 54 then
        raise exception 'with the date appended, % would be longer than the 63 bytes of a name', stem
            using hint = 'Give the outbox a name of at most 54 bytes.';
    end if;
    for day in select first_day + n from generate_series(0, days - 1) as n loop
        leaf := format('%I.%I', in_schema, stem || to_char(day, '_YYYYMMDD'));
        continue when exists (select from pg_inherits where inhparent = outbox and inhrelid = to_regclass(leaf));
        begin
            execute format('create table %s (like %s including defaults including constraints)', leaf, outbox);
            execute format('alter table %s attach partition %s for values from (%L) to (%L)',
                           outbox, leaf, day::timestamptz, (day + 1)::timestamptz);
            made := made + 1;
        exception when check_violation then
            raise warning 'the default partition of % holds rows of %; no partition is made for that day', outbox, day;
        end;
    end loop;
    return made;
end
$walpost$;

comment on function walpost.make_partitions(date, integer) is 'Makes the outbox''s partitions, one a day, ahead of time';

create table if not exists walpost.outbox_default partition of walpost.outbox default;

select walpost.make_partitions() as partitions_made;
