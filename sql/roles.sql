-- Three roles with the least each task needs. None can log in: grant them to the roles that you log in with, or give them
-- LOGIN and a password. Roles belong to the whole server; existing ones are left as they are, and granted what they lack.
--
--     grant walpost_enqueue to shop;                                       -- the application
--     alter role walpost_stream login password '…';                        -- walpost run
--     grant walpost_operate to alice;                                      -- people who look after it
--
-- Replication is an attribute and not inherited through membership: walpost must log in as walpost_stream itself, or as
-- another role with REPLICATION. Who may not give the attribute (up to PostgreSQL 15 only superusers may, from 16 on
-- roles with CREATEROLE and REPLICATION too) sees a warning that says what is left to do; all else is done.

do $walpost$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = 'walpost_stream') then
        create role walpost_stream;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'walpost_operate') then
        create role walpost_operate;
    end if;
    if not exists (select from pg_catalog.pg_roles where rolname = 'walpost_enqueue') then
        create role walpost_enqueue;
    end if;
end
$walpost$;

-- walpost_stream: the replication attribute, by whichever way this server knows.
do $walpost$
begin
    if (select rolreplication from pg_catalog.pg_roles where rolname = 'walpost_stream') then
        return;
    end if;
    if exists (select from pg_catalog.pg_roles where rolname = 'rds_replication') then
        grant rds_replication to walpost_stream;
    else
        alter role walpost_stream replication;
    end if;
exception when insufficient_privilege then
    raise warning 'role walpost_stream may not replicate yet: %', sqlerrm
        using hint = 'As a superuser (or your provider''s administrator): alter role walpost_stream replication';
end
$walpost$;

-- Whose transaction or connection is in the way shows only to members of pg_read_all_stats.
do $walpost$
begin
    grant pg_read_all_stats to walpost_stream, walpost_operate;
exception when insufficient_privilege then
    raise warning 'roles walpost_stream and walpost_operate cannot see other sessions: %', sqlerrm
        using hint = 'As a superuser (or your provider''s administrator): grant pg_read_all_stats to walpost_stream, walpost_operate';
end
$walpost$;

grant usage on schema walpost to walpost_stream, walpost_operate, walpost_enqueue;

do $walpost$
begin
    if to_regclass('walpost.outbox') is not null then
        -- To stream: the log itself needs no right on the table; comparing the two does.
        grant select on walpost.outbox to walpost_stream;

        -- To operate: look at events, and delete those that are published.
        grant select, delete on walpost.outbox to walpost_operate;

        -- To enqueue: insert, and find the event of an idempotency key; not read what others wrote.
        grant insert, select (id, idempotency_key) on walpost.outbox to walpost_enqueue;
        revoke execute on function walpost.enqueue from public;
        grant execute on function walpost.enqueue to walpost_enqueue;
    end if;
end
$walpost$;

-- What makes keys for it (idempotency_key.sql).
do $walpost$
begin
    if to_regproc('walpost.idempotency_key') is not null then
        grant execute on function walpost.idempotency_key to walpost_enqueue;
    end if;
end
$walpost$;

-- The outbox without a table (emit.sql).
do $walpost$
begin
    if to_regproc('walpost.emit') is not null then
        revoke execute on function walpost.emit from public;
        grant execute on function walpost.emit to walpost_enqueue;
        revoke execute on function walpost.emit_bytes from public;
        grant execute on function walpost.emit_bytes to walpost_enqueue;
    end if;
end
$walpost$;

-- What only the partitioned outbox has.
do $walpost$
begin
    if to_regclass('walpost.idempotency') is not null then
        grant insert, select on walpost.idempotency to walpost_enqueue;
        grant select, delete on walpost.idempotency to walpost_operate;
        revoke execute on function walpost.make_partitions from public;
    end if;
    if to_regclass('walpost.aggregate_version') is not null then
        grant insert on walpost.aggregate_version to walpost_enqueue;
        grant select, delete on walpost.aggregate_version to walpost_operate;
    end if;
end
$walpost$;

-- Progress (progress.sql, event_state.sql): walpost writes it, who operates looks.
do $walpost$
begin
    if to_regclass('walpost.progress') is not null then
        grant select, insert, update on walpost.progress to walpost_stream;
        grant select on walpost.progress to walpost_operate;
    end if;
    if to_regclass('walpost.event_state') is not null then
        grant select on walpost.event_state to walpost_stream, walpost_operate;
    end if;
end
$walpost$;

-- Attempts in vain (attempt.sql): walpost counts, who operates looks.
do $walpost$
begin
    if to_regclass('walpost.attempt') is not null then
        grant select, insert, update, delete on walpost.attempt to walpost_stream;
        grant select on walpost.attempt to walpost_operate;
    end if;
end
$walpost$;

-- Dead letters (dead_letter.sql): walpost writes them; whoever operates decides what becomes of them and changes nothing else.
do $walpost$
begin
    if to_regclass('walpost.dead_letter') is not null then
        grant select, insert, update on walpost.dead_letter to walpost_stream;
        grant select, update (state, replay_requested_at, settled_at) on walpost.dead_letter to walpost_operate;
    end if;
end
$walpost$;
