-- Dead letters: events that can never be delivered as they are, and events that wait behind one so that order holds.
--
-- walpost writes a row before it confirms the event's position, and reads the rows again when it starts. People look at
-- them and decide, with walpost dead-letter or with psql:
--
--     select id, state, reason_class, topic, aggregate_id, event_id, reason from walpost.dead_letter
--     where state in ('dead', 'parked') order by slot, position;
--     update walpost.dead_letter set replay_requested_at = now() where id = 42 and topic is not null;    -- send it again
--     update walpost.dead_letter set state = 'discarded', settled_at = now() where id = 42;              -- never send it
--
-- Replay sends all that is parked under the same park_key, in order. Run this file as often as you like: what exists is
-- left as it is. Run roles.sql after it.

do $walpost$
begin
    -- Not CREATE SCHEMA IF NOT EXISTS, which asks for the right to make one even where there is nothing to make.
    if to_regnamespace('walpost') is null then
        create schema walpost;
    end if;
end
$walpost$;

create table if not exists walpost.dead_letter (
    id                  bigint      primary key generated always as identity,

    -- Where it stood in the log.
    system_identifier   text        not null,
    slot                text        not null,
    position            text        not null collate "C"
        constraint dead_letter_position_sorts check (position ~ '^[0-9A-F]{16}-[0-9A-F]{8}$'),
    event_id            text        not null,
    xid                 bigint      not null,

    -- What it is.
    source_table        text        not null,
    aggregate_type      text,
    aggregate_id        text,
    event_type          text,

    -- The record, as it would have been sent.
    topic               text,
    partition           integer,
    key                 bytea,
    payload             bytea,
    header_names        text[]      not null,
    header_values       bytea[]     not null,
    record_timestamp    timestamptz not null,

    -- Why it was not.
    reason_class        text        not null
        constraint dead_letter_reason_is_known check
            (reason_class in ('too_large', 'invalid_topic', 'unroutable', 'unknown_topic', 'rejected', 'parked')),
    reason              text        not null,
    attempts            integer     not null,
    first_failed_at     timestamptz not null,
    last_failed_at      timestamptz not null,
    later_delivered     boolean     not null,

    -- What becomes of it.
    state               text        not null
        constraint dead_letter_state_is_known check (state in ('dead', 'parked', 'replayed', 'discarded')),
    park_key            bytea
        constraint dead_letter_parked_has_a_key check (park_key is not null or state <> 'parked'),
    replay_requested_at timestamptz,
    settled_at          timestamptz,

    constraint dead_letter_headers_are_pairs check (cardinality(header_names) = cardinality(header_values)),
    constraint dead_letter_once unique (system_identifier, slot, position, event_id)
);

-- What is parked, and under what: read when walpost starts, and while it runs.
create index if not exists dead_letter_parked on walpost.dead_letter (slot, park_key, position) where state = 'parked';
create index if not exists dead_letter_requested on walpost.dead_letter (slot)
    where replay_requested_at is not null and state in ('dead', 'parked');

-- Whether an event has one: asked when its row is to be deleted.
create index if not exists dead_letter_event on walpost.dead_letter (event_id);

comment on table  walpost.dead_letter is 'Events that walpost could not deliver, and those that wait behind them';
comment on column walpost.dead_letter.system_identifier   is 'The server whose log position belongs to; a restored dump has another';
comment on column walpost.dead_letter.position            is 'Commit LSN and ordinal; comparing texts compares positions';
comment on column walpost.dead_letter.event_id            is 'Its id; empty where the row had none';
comment on column walpost.dead_letter.xid                 is 'The transaction that inserted it';
comment on column walpost.dead_letter.source_table        is 'The outbox, as SQL writes its name';
comment on column walpost.dead_letter.topic               is 'NULL: none could be made out, so it cannot be replayed';
comment on column walpost.dead_letter.partition           is 'NULL: the key decides';
comment on column walpost.dead_letter.key                 is 'NULL: no key';
comment on column walpost.dead_letter.payload             is 'NULL: a tombstone';
comment on column walpost.dead_letter.header_names        is 'Of the record, in order; a name may stand more than once';
comment on column walpost.dead_letter.header_values       is 'The bytes that go with header_names; NULL is Kafka''s null';
comment on column walpost.dead_letter.reason_class        is 'parked: nothing is wrong with it, it waits behind another';
comment on column walpost.dead_letter.later_delivered     is 'Later events of its aggregate were not held up for it: a replay comes after those that are delivered by then';
comment on column walpost.dead_letter.state               is 'dead: alone. parked: it holds later events of its aggregate up. replayed: delivered. discarded: never sent';
comment on column walpost.dead_letter.park_key            is 'SHA-256 of what it is parked by: topic and key, or table and aggregate where there is no topic';
comment on column walpost.dead_letter.replay_requested_at is 'Set it to have it sent again, with all that is parked under its park_key';
comment on column walpost.dead_letter.settled_at          is 'When it was replayed or discarded';
