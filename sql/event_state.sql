-- What has become of each event: PENDING, PUBLISHED or DEAD_LETTER, for each slot that streams it.
--
--     select id, state from walpost.event_state where aggregate_id = 'o-812' order by seq;
--
-- PUBLISHED is proven (progress.sql): Kafka has it. PENDING may have arrived too, in the last seconds. DEAD_LETTER is not
-- delivered, and waits for a person or was discarded by one. Run it after outbox.sql, dead_letter.sql and progress.sql, as often as you like.

create index if not exists dead_letter_event on walpost.dead_letter (event_id);

create or replace view walpost.event_state as
select o.id, o.seq, o.aggregate_type, o.aggregate_id, o.event_type, o.occurred_at, p.slot,
       case when exists (select from walpost.dead_letter d
                         where d.event_id = o.id::text and d.slot = p.slot and d.state <> 'replayed') then 'DEAD_LETTER'
            when p.system_identifier = s.system_identifier::text and walpost.is_published(o.txid, o.tableoid, p) then 'PUBLISHED'
            else 'PENDING' end as state
from walpost.outbox o left join walpost.progress p on true, pg_catalog.pg_control_system() s;

comment on view walpost.event_state is 'What has become of each event, for each slot; slot is NULL where none has begun';
