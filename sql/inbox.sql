-- The inbox: a consumer's half. Kafka may hand an event out more than once; this lets its effect happen once.
--
-- Claim the event in the transaction that has the effect, and leave the effect out where the claim says false:
--
--     begin;
--     select walpost.inbox_claim('billing', '6f1c…');        -- the id of the event, header id of the record
--     …                                                       -- true: the effect. false: nothing
--     commit;                                                 -- and only then commit the offset
--
-- For events that say how something is now, a position an aggregate is enough (header position of the record):
--
--     select walpost.inbox_advance('search', 'order/o-812', '00000000016B3748-00000000');
--
-- It stands alone: no outbox, publication or slot is needed in this database. Run it as often as you like: tables that exist
-- are left as they are. Functions run with the caller's rights; role walpost_consume has just enough.

do $walpost$
begin
    -- Not CREATE SCHEMA IF NOT EXISTS, which asks for the right to make one even where there is nothing to make.
    if to_regnamespace('walpost') is null then
        create schema walpost;
    end if;
end
$walpost$;

create table if not exists walpost.inbox (
    consumer     text        not null
        constraint inbox_consumer_is_named check (octet_length(consumer) between 1 and 255),
    -- Events without an id would all be duplicates of each other.
    event_id     text        not null
        constraint inbox_event_id_is_given check (octet_length(event_id) between 1 and 1024),
    processed_at timestamptz not null default clock_timestamp(),
    primary key (consumer, event_id)
);

-- The oldest first: how prune reads.
create index if not exists inbox_processed_at on walpost.inbox (consumer, processed_at);

-- A row for each duplicate, until prune adds it to inbox_consumer. Counting in a row that is there would make duplicates wait
-- for each other until the transaction with the first of them ends, and fail at REPEATABLE READ. Rows that are only
-- added wait for nothing.
create table if not exists walpost.inbox_suppressed (
    consumer text   not null,
    id       bigint not null generated always as identity,
    primary key (consumer, id)
);

-- What is known of a consumer as a whole. Only inbox_retention and inbox_prune write here, so claims never wait for it.
create table if not exists walpost.inbox_consumer (
    consumer          text        primary key
        constraint inbox_consumer_is_named check (octet_length(consumer) between 1 and 255),
    topic_retention   interval
        constraint inbox_topic_retention_is_positive check (topic_retention > interval '0'),
    stated_at         timestamptz,
    pruned_claims     bigint      not null default 0,
    pruned_duplicates bigint      not null default 0
);

create table if not exists walpost.inbox_position (
    consumer    text        not null
        constraint inbox_consumer_is_named check (octet_length(consumer) between 1 and 255),
    aggregate   text        not null
        constraint inbox_aggregate_is_given check (octet_length(aggregate) between 1 and 1024),
    position    text        not null collate "C"
        constraint inbox_position_sorts check (position ~ '^[0-9A-F]{16}-[0-9A-F]{8}$'),
    advanced_at timestamptz not null default clock_timestamp(),
    primary key (consumer, aggregate)
);

comment on table  walpost.inbox                            is 'Events that a consumer has processed';
comment on column walpost.inbox.processed_at               is 'When it was claimed';
comment on table  walpost.inbox_suppressed                 is 'Duplicates that were suppressed since the last prune, a row each';
comment on table  walpost.inbox_consumer                   is 'What the operator says of a consumer, and counts of rows that are gone';
comment on column walpost.inbox_consumer.topic_retention   is 'For how long the topic may hand out an event again: claims are kept as long';
comment on column walpost.inbox_consumer.pruned_claims     is 'Claims that were deleted';
comment on column walpost.inbox_consumer.pruned_duplicates is 'Rows of inbox_suppressed that were deleted';
comment on table  walpost.inbox_position                   is 'How far a consumer is with each aggregate';
comment on column walpost.inbox_position.position          is 'Commit LSN and ordinal; comparing texts compares positions';

-- True the first time: the event is the caller's, if the caller's transaction commits. False: it was processed, leave it.
--
-- Where another transaction has claimed the event and not ended yet, this waits for it: rolled back, true; committed,
-- false. At REPEATABLE READ or above a claim that this transaction cannot see ends it with serialization_failure: run it
-- again from its beginning, as after deadlock_detected. An id that stands twice in one transaction is true once.
create or replace function walpost.inbox_claim(consumer text, event_id text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
#variable_conflict use_column
begin
    insert into walpost.inbox (consumer, event_id)
    values (inbox_claim.consumer, inbox_claim.event_id)
    on conflict (consumer, event_id) do nothing;
    if found then
        return true;
    end if;
    insert into walpost.inbox_suppressed (consumer) values (inbox_claim.consumer);
    return false;
end
$walpost$;

comment on function walpost.inbox_claim(text, text)
    is 'True once for an event, in the caller''s transaction; false for a duplicate';

-- True where the position is newer than the aggregate's last one, which it then becomes; also the first time. Waits and
-- fails as inbox_claim does. A position is one of one database server: forget them (delete from walpost.inbox_position)
-- when the producer's database is made anew from a dump.
create or replace function walpost.inbox_advance(consumer text, aggregate text, event_position text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
#variable_conflict use_column
begin
    insert into walpost.inbox_position as known (consumer, aggregate, position)
    values (inbox_advance.consumer, inbox_advance.aggregate, inbox_advance.event_position)
    on conflict (consumer, aggregate) do update
    set position = excluded.position, advanced_at = clock_timestamp()
    where known.position < excluded.position;
    return found;
end
$walpost$;

comment on function walpost.inbox_advance(text, text, text)
    is 'True for a position that is newer than the aggregate''s last one, in the caller''s transaction';

-- States for how long the topic may hand out an event again: retention.ms and segment.ms together, and the time in which
-- the producer may send an old event once more. Exact time: a day is 24 hours, a month 30 days.
create or replace function walpost.inbox_retention(consumer text, topic_retention interval) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
#variable_conflict use_column
begin
    if inbox_retention.topic_retention is null then
        raise exception 'the retention of the topic must not be null'
            using errcode = 'null_value_not_allowed',
                  hint = 'A topic that keeps its records for ever wants an inbox that is never pruned.';
    end if;
    insert into walpost.inbox_consumer as known (consumer, topic_retention, stated_at)
    values (inbox_retention.consumer, inbox_retention.topic_retention, clock_timestamp())
    on conflict (consumer) do update
    set topic_retention = excluded.topic_retention, stated_at = excluded.stated_at;
end
$walpost$;

comment on function walpost.inbox_retention(text, interval)
    is 'States for how long the topic may hand out an event again; inbox_prune keeps claims as long';

-- Deletes claims that are older, the oldest first. Run it until it returns 0; each call takes rows_max rows at most of a table.
--
-- Duplicates come first: rows of inbox_suppressed become a number in inbox_consumer. While there are rows_max of them, a call
-- does that alone and returns rows_max. The call that meets fewer takes these, then deletes claims, and returns how many claims:
-- new duplicates do not keep a loop from its end.
--
-- Refuses to delete claims where an event could be processed twice by that: an age below the stated retention, or none stated;
-- force passes over that. Full batches of duplicates are gone by then if each call was committed. Prunes of one consumer wait
-- for each other; claims do not wait for them.
--
--     do 'begin while walpost.inbox_prune(''billing'', ''14 days'') > 0 loop commit; end loop; end';
create or replace function walpost.inbox_prune(
    consumer   text,
    older_than interval,
    force      boolean default false,
    rows_max   integer default 10000
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
#variable_conflict use_column
declare
    stated     interval;
    before     timestamptz;
    claims     bigint;
    duplicates bigint;
begin
    if older_than is null or older_than < interval '0' or rows_max is null or rows_max < 1 then
        raise exception 'inbox_prune takes an age of zero or more, and rows_max of one or more'
            using errcode = 'invalid_parameter_value';
    end if;

    -- Its row is locked from here on.
    insert into walpost.inbox_consumer as known (consumer) values (inbox_prune.consumer)
    on conflict (consumer) do update set consumer = excluded.consumer
    returning known.topic_retention into stated;

    with gone as (
        delete from walpost.inbox_suppressed as duplicate
        using (select id from walpost.inbox_suppressed
               where consumer = inbox_prune.consumer order by id limit rows_max) as old
        where duplicate.consumer = inbox_prune.consumer and duplicate.id = old.id
        returning 1)
    select count(*) into duplicates from gone;
    update walpost.inbox_consumer set pruned_duplicates = pruned_duplicates + duplicates
    where consumer = inbox_prune.consumer;
    -- Ended here, so that a refusal below undoes none of it.
    if duplicates = rows_max then
        return duplicates;
    end if;

    if force is not true then
        if stated is null then
            raise exception 'the retention of the topic that consumer % reads is not stated',
                quote_literal(inbox_prune.consumer)
                using errcode = 'object_not_in_prerequisite_state',
                      hint = format('State it: select %s.inbox_retention(%L, interval ''8 days''). Or force => true.',
                                    'walpost', inbox_prune.consumer);
        end if;
        if extract(epoch from older_than) < extract(epoch from stated) then
            raise exception 'consumer % may be handed an event again for %, longer than %',
                quote_literal(inbox_prune.consumer), stated, older_than
                using errcode = 'object_not_in_prerequisite_state',
                      hint = format('Prune what is older than that, or state a shorter retention of the topic: '
                                    'select %s.inbox_retention(%L, …). Or force => true.', 'walpost', inbox_prune.consumer);
        end if;
    end if;

    -- Elapsed time, whatever the time zone has in between.
    before := clock_timestamp() - make_interval(secs => extract(epoch from older_than)::double precision);
    with gone as (
        delete from walpost.inbox as claim
        using (select event_id from walpost.inbox
               where consumer = inbox_prune.consumer and processed_at < before
               order by processed_at limit rows_max) as old
        where claim.consumer = inbox_prune.consumer and claim.event_id = old.event_id and claim.processed_at < before
        returning 1)
    select count(*) into claims from gone;
    update walpost.inbox_consumer set pruned_claims = pruned_claims + claims
    where consumer = inbox_prune.consumer;
    return claims;
end
$walpost$;

comment on function walpost.inbox_prune(text, interval, boolean, integer)
    is 'Adds up a batch of duplicates, or deletes a batch of claims that no topic can hand out again; returns 0 at the end';

-- What was claimed and what was suppressed, ever: claims that were pruned count. It counts the rows of the consumer.
create or replace view walpost.inbox_stats as
select consumer,
       sum(claimed)::bigint as claimed,
       sum(suppressed)::bigint as suppressed,
       round(sum(suppressed) / nullif(sum(claimed) + sum(suppressed), 0), 6) as suppression_rate
from (
    select consumer, count(*) as claimed, 0 as suppressed from walpost.inbox group by consumer
    union all
    select consumer, 0, count(*) from walpost.inbox_suppressed group by consumer
    union all
    select consumer, pruned_claims, pruned_duplicates from walpost.inbox_consumer
) as counted
group by consumer;

comment on view   walpost.inbox_stats                  is 'Events that each consumer has claimed, and suppressed duplicates';
comment on column walpost.inbox_stats.suppression_rate is 'Duplicates among all that was handed to it; NULL before the first';

-- The same for whoever asks every minute: nothing is counted that may be large. Claims are what the server's statistics say
-- (NULL before the first ANALYZE, or for who may not read the inbox); duplicates are exact, but for those beyond a million that
-- no prune has added up.
create or replace view walpost.inbox_metrics as
with recursive known(consumer) as (
    (select consumer from walpost.inbox order by consumer limit 1)
    union all
    select (select later.consumer from walpost.inbox as later
            where later.consumer > known.consumer order by later.consumer limit 1)
    from known where known.consumer is not null
), consumers as (
    select consumer from known where consumer is not null
    union
    select consumer from walpost.inbox_consumer
), claims as (
    -- Rows to a page when it was last looked at, times the pages that it has now: as the planner does.
    select case when c.reltuples >= 0 then
               c.reltuples / greatest(c.relpages, 1)
               * (pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint)
           end as total,
           s.most_common_vals::text::text[] as consumers,
           s.most_common_freqs as parts
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    left join pg_catalog.pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname and s.attname = 'consumer'
    where c.oid = 'walpost.inbox'::pg_catalog.regclass
)
select consumers.consumer,
       round(claims.total * claims.parts[pg_catalog.array_position(claims.consumers, consumers.consumer)])::bigint
           as claims_estimated,
       (select count(*) from (select from walpost.inbox_suppressed as duplicate
                              where duplicate.consumer = consumers.consumer limit 1000000) as bounded)
           + coalesce(stated.pruned_duplicates, 0) as suppressed,
       coalesce(stated.pruned_claims, 0) as pruned,
       (select min(processed_at) from walpost.inbox as claim where claim.consumer = consumers.consumer) as oldest_at,
       (select max(processed_at) from walpost.inbox as claim where claim.consumer = consumers.consumer) as newest_at,
       stated.topic_retention
from consumers
cross join claims
left join walpost.inbox_consumer as stated on stated.consumer = consumers.consumer;

comment on view   walpost.inbox_metrics                  is 'What is cheap to know of each consumer''s claims, for dashboards';
comment on column walpost.inbox_metrics.claims_estimated is 'Claims that are there, by the statistics of the server';
comment on column walpost.inbox_metrics.suppressed       is 'Duplicates that were suppressed, ever';
comment on column walpost.inbox_metrics.pruned           is 'Claims that were deleted, ever';

-- The least that a consumer needs. It cannot log in: grant it to the role that the consumer logs in with.
do $walpost$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'walpost_consume') then
        create role walpost_consume;
    end if;
exception
    when insufficient_privilege then
        raise warning 'role walpost_consume is not made: %', sqlerrm
            using hint = 'As a role with CREATEROLE: create role walpost_consume; then run this file again.';
    when duplicate_object or unique_violation then
        raise notice 'role walpost_consume is being made in another database';
end
$walpost$;

do $walpost$
begin
    if exists (select from pg_catalog.pg_roles where rolname = 'walpost_consume') then
        grant usage on schema walpost to walpost_consume;
        grant insert, select (consumer, event_id) on walpost.inbox to walpost_consume;
        grant insert on walpost.inbox_suppressed to walpost_consume;
        grant insert, select, update on walpost.inbox_position to walpost_consume;
        grant select on walpost.inbox_stats to walpost_consume;
    end if;

    -- Who operates (roles.sql) states the retention and prunes.
    if exists (select from pg_catalog.pg_roles where rolname = 'walpost_operate') then
        grant usage on schema walpost to walpost_operate;
        grant select, delete on walpost.inbox, walpost.inbox_suppressed, walpost.inbox_position to walpost_operate;
        grant select, insert, update on walpost.inbox_consumer to walpost_operate;
        grant select on walpost.inbox_stats, walpost.inbox_metrics to walpost_operate;
    end if;
end
$walpost$;
