-- How far each slot is published, and the proof of it: what lets rows be deleted, and a lost slot be survived.
--
-- walpost takes a snapshot S of the transactions that have ended, and then the end L of the log. Whatever is visible in S
-- ends at or below L: once all up to L is delivered, every row whose txid is visible in S is published, for ever. It
-- writes S here, and touches no row of the outbox. The columns txid must hold the id of the whole transaction
-- (pg_current_xact_id()), never xmin: a sub-transaction has another.
--
--     select slot, published_at, confirmed from walpost.progress;
--     select o.* from walpost.outbox o, walpost.progress p
--     where p.slot = 'walpost' and not walpost.is_published(o.txid, o.tableoid, p);
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

create table if not exists walpost.progress (
    slot              text        primary key,

    -- Whose log it speaks of, and who may write.
    system_identifier text        not null,
    timeline          bigint      not null,
    -- Begins with the time, so that it is above what an earlier row of the slot had.
    epoch             bigint      not null default extract(epoch from clock_timestamp()),

    -- Which tables and rows it speaks of.
    publication       text,

    -- The slot as it was when this row was written.
    confirmed         pg_lsn,
    stopped_clean     boolean     not null default false,
    decoded           bigint,

    -- The proof.
    published         pg_snapshot,
    published_at      timestamptz,
    candidate         pg_snapshot,
    candidate_lsn     pg_lsn,
    candidate_at      timestamptz,

    -- What was there before the slot.
    started           pg_snapshot,
    started_sent      boolean     not null default false,

    -- Tables that the publication lets through, each partition by itself, what makes it so, and transactions of which that is
    -- not known.
    covered           oid[],
    covered_how       text[],
    gaps              int8multirange[],

    -- Reading of the table that is under way.
    reading           text
        constraint progress_reading_is_known check (reading in ('initial', 'recovery')),
    reading_since     timestamptz
        constraint progress_reading_has_a_time check (reading is null or reading_since is not null),
    reading_visible   pg_snapshot,
    reading_at        pg_lsn,
    reading_key       jsonb,

    -- The stream began again at an earlier position (walpost run --from-lsn), or is about to.
    rewind_to         pg_lsn,
    rewind_from       text,
    rewind_at         timestamptz,
    rewind_done       boolean     not null default true,

    updated_at        timestamptz not null default clock_timestamp()
);

-- The row is the slot's to send: it was not there before the slot, unless that was sent, and not in a gap.
create or replace function walpost.is_streamed(txid xid8, relation oid, progress walpost.progress) returns boolean
language sql stable
return coalesce(
    relation = any ((progress).covered)
    and ((progress).started_sent or not pg_visible_in_snapshot(txid, (progress).started))
    and case when ((progress).gaps)[array_position((progress).covered, relation)] is null then true
             else not txid::text::bigint <@ ((progress).gaps)[array_position((progress).covered, relation)] end,
    false);

-- The row, whose tableoid is the relation, is proven published.
create or replace function walpost.is_published(txid xid8, relation oid, progress walpost.progress) returns boolean
language sql stable
return walpost.is_streamed(txid, relation, progress)
       and coalesce(pg_visible_in_snapshot(txid, (progress).published), false);

comment on table  walpost.progress is 'How far walpost has published, a row a slot';
comment on column walpost.progress.system_identifier is 'The server whose log and transactions it speaks of; a restored dump has another, and the proof is void there';
comment on column walpost.progress.timeline          is 'Raised by each promotion';
comment on column walpost.progress.epoch             is 'Raised by each process that gains the slot; what an older one writes then is refused';
comment on column walpost.progress.publication       is 'What the slot is streamed through: rows that it leaves out are not the slot''s to prove. NULL: not known, so all are';
comment on column walpost.progress.confirmed         is 'Confirmed position of the slot at updated_at';
comment on column walpost.progress.stopped_clean     is 'confirmed is the last word: walpost stopped in order, and nothing was confirmed since';
comment on column walpost.progress.decoded           is 'pg_stat_replication_slots.total_txns then: tells the slot from a later one of its name';
comment on column walpost.progress.published         is 'All that is visible in it is published, or was there before the slot';
comment on column walpost.progress.published_at      is 'When it was taken';
comment on column walpost.progress.candidate         is 'Becomes published once confirmed has passed candidate_lsn';
comment on column walpost.progress.started           is 'What was visible when the slot began: the log has none of it';
comment on column walpost.progress.started_sent      is 'That was read from the table and sent';
comment on column walpost.progress.covered           is 'Tables that the publication lets through, each partition by itself: of others nothing is proven';
comment on column walpost.progress.covered_how       is 'By which rows of the catalog, in which version; empty: not any more';
comment on column walpost.progress.gaps              is 'Their ids, a table each: they may have written while the publication did not let it through';
comment on column walpost.progress.reading           is 'initial: rows older than the slot are being sent. recovery: rows that a lost slot left unpublished are';
comment on column walpost.progress.reading_since     is 'When it began: what was committed by then is among it';
comment on column walpost.progress.reading_visible   is 'The rows to send are visible in it; NULL until the slot is made';
comment on column walpost.progress.reading_at        is 'Consistent point of the slot that was made for it; all later rows come from the log';
comment on column walpost.progress.rewind_to         is 'Where the stream began again. It does so once; NULL forgets that';
comment on column walpost.progress.rewind_from       is 'The bookmark from which the slot is made anew';
comment on column walpost.progress.rewind_at         is 'When it was asked for; exactly once, what Kafka stored before no longer counts';
comment on column walpost.progress.rewind_done       is 'False: the slot may be missing, and whoever gains it makes it from rewind_from';
comment on column walpost.progress.reading_key       is 'Where it is to go on: table and order of the last row that Kafka acknowledged; NULL at the first row';
