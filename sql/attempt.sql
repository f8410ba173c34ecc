-- How often walpost tried to deliver an event in vain, for sinks that count (webhooks): a restart goes on counting.
--
-- A row is there while its event is tried again, and is gone when the event is delivered or has become a dead letter.
--
--     select event_id, attempts, last_error, last_failed_at from walpost.attempt order by slot, position;
--
-- Run this file as often as you like: what exists is left as it is. Run roles.sql after it.

do $walpost$
begin
    -- Not CREATE SCHEMA IF NOT EXISTS, which asks for the right to make one even where there is nothing to make.
    if to_regnamespace('walpost') is null then
        create schema walpost;
    end if;
end
$walpost$;

create table if not exists walpost.attempt (
    system_identifier text        not null,
    slot              text        not null,
    position          text        not null collate "C",
    event_id          text        not null,
    attempts          integer     not null,
    last_error        text        not null,
    last_failed_at    timestamptz not null default clock_timestamp(),
    primary key (system_identifier, slot, position, event_id)
);

comment on table  walpost.attempt                   is 'Events that are tried again, and how often that was in vain';
comment on column walpost.attempt.system_identifier is 'The server whose log position belongs to; a restored dump has another';
comment on column walpost.attempt.position          is 'Commit LSN and ordinal; comparing texts compares positions';
