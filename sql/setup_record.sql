-- What `walpost setup` made: `walpost teardown` drops this and nothing else. Objects that existed before, or that you make
-- by hand, are not listed and not dropped.

create table if not exists walpost.setup_record (
    kind    text        not null,
    schema  text        not null default '',
    name    text        not null,
    made_at timestamptz not null default now(),
    made_by text        not null default current_user,
    primary key (kind, schema, name)
);

comment on table walpost.setup_record is 'What walpost setup made, and teardown may drop';
