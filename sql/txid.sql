-- Keeps txid true: whatever inserts a row, be it a copy from another server, a restored dump or logical replication, txid is
-- the transaction that inserted it here, and no update makes another of it than its own. The proof of publication
-- (progress.sql) rests on that. An insert that leaves txid to its default pays for one comparison.
--
-- Run it after outbox.sql or outbox_partitioned.sql, as often as you like: what exists is left as it is. Where it finds no
-- trigger it waits two seconds at most for the outbox to be free for one.

create or replace function walpost.keep_txid() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $walpost$
begin
    if tg_op = 'INSERT' then
        new.txid := pg_current_xact_id();
    else
        new.txid := old.txid;
    end if;
    return new;
end
$walpost$;

comment on function walpost.keep_txid() is 'Trigger of the outbox: txid is the transaction that inserted the row';

do $walpost$
begin
    if exists (select from pg_catalog.pg_trigger
               where tgrelid = 'walpost.outbox'::regclass and tgname = 'keep_txid' and tgenabled = 'A') then
        return;
    end if;
    perform set_config('lock_timeout', '2s', true);
    create or replace trigger keep_txid before insert or update of txid on walpost.outbox
        for each row when (new.txid is distinct from pg_current_xact_id()) execute function walpost.keep_txid();
    -- A subscription's worker passes over other triggers.
    alter table walpost.outbox enable always trigger keep_txid;
end
$walpost$;
