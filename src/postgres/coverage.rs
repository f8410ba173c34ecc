//! Which rows the publication let through to a slot, beside when they were committed: the part of the proof of publication
//! that is about tables.
//!
//! A row that is inserted while its table is not published, or while a filter leaves it out, is in no slot's stream,
//! however far that is confirmed. So the slot's row of progress lists the tables that are streamed, a partition as a table of its
//! own, and of each *how*: which rows of the catalog, in which version, make it published. A change of that is never taken back
//! by another one, since ids of transactions grow, so what is found the same at two moments was the same in between. Where
//! it is not, there is a gap, a range of transactions of which nothing is known: from the oldest that ran at the last proof to
//! the last that had begun when the end was seen.

use crate::{pipeline::outbox::Outbox, postgres::quote};

/// All transactions whose ids are given by now, as an expression: ended ones, those that run, and those that have
/// written their commit and are not seen yet.
pub const BEGUN: &str = "pg_catalog.format('%1$s:%1$s:', pg_catalog.pg_current_xact_id())::pg_catalog.pg_snapshot";

/// In a *how* that has a row filter. What the filter leaves out counts as published as long as it stands; once it is another one,
/// the gap goes back to where it began.
const FILTERED: &str = "/filtered";

/// The columns of [`whole`] and [`continued`].
pub const COLUMNS: &str = "covered, covered_how, gaps";

/// The assignment of the columns, by one of these, in an UPDATE.
pub fn assign(query: &str) -> String {
    format!("({COLUMNS}) = ({query})")
}

/// A query of what is published by now: `relation` and `how`. `major`: the server's, or 14 for what holds on all.
pub fn published(publication: &str, outboxes: &[Outbox], major: i32) -> String {
    let tables: Vec<_> = outboxes
        .iter()
        .map(|outbox| format!("({}, {})", quote::literal(&outbox.name.schema), quote::literal(&outbox.name.table)))
        .collect();
    // Logical messages are an outbox without a table.
    let tables = match &tables[..] {
        [] => "select '', '' where false".to_owned(),
        tables => format!("values {}", tables.join(", ")),
    };
    let of_schema = if major >= 15 {
        " union all select oid, xmin, '' from pg_catalog.pg_publication_namespace
          where pnpubid = p.oid and pnnspid = t.relnamespace"
    } else {
        ""
    };
    format!(
        "select leaf.oid as relation,
        pg_catalog.concat_ws(' ', p.oid, p.xmin, via.rows, name.xmin,
            (select pg_catalog.string_agg(i.xmin::text, ' ' order by i.inhrelid)
             from pg_catalog.pg_partition_ancestors(leaf.oid) a join pg_catalog.pg_inherits i on i.inhrelid = a.relid)) as how
 from ({}) named(nspname, relname)
 join pg_catalog.pg_namespace n using (nspname) join pg_catalog.pg_class t on t.relnamespace = n.oid and t.relname = named.relname
 join pg_catalog.pg_type name on name.oid = t.reltype
 join pg_catalog.pg_publication p on p.pubname = {} and p.pubinsert and (p.pubviaroot or t.relkind <> 'p')
 left join lateral pg_catalog.pg_partition_tree(t.oid) part on part.isleaf
 join pg_catalog.pg_class leaf on leaf.oid = coalesce(part.relid, t.oid) and leaf.relkind = 'r' and leaf.relpersistence = 'p'
 cross join lateral (
     select pg_catalog.string_agg(v.oid || '/' || v.xmin || v.filter, ' ' order by v.oid) as rows
     from (select oid, xmin, case when pg_catalog.to_jsonb(r) ->> 'prqual' is null then '' else '{FILTERED}' end as filter
           from pg_catalog.pg_publication_rel r
           where prpubid = p.oid and (prrelid = t.oid or not p.pubviaroot
               and prrelid in (select relid from pg_catalog.pg_partition_ancestors(t.oid))){of_schema}) v) via
 where (p.puballtables or via.rows is not null) and not (p.pubviaroot and t.relispartition and (p.puballtables or exists (
     select from pg_catalog.pg_publication_rel
     where prpubid = p.oid and prrelid <> t.oid and prrelid in (select relid from pg_catalog.pg_partition_ancestors(t.oid)))))",
        tables,
        quote::literal(publication)
    )
}

/// The columns of a slot that has, or will have, all that is inserted into these from now on.
pub fn whole(published: &str) -> String {
    format!(
        "select pg_catalog.array_agg(relation) as covered, pg_catalog.array_agg(how) as covered_how,
       pg_catalog.array_agg(null::pg_catalog.int8multirange) as gaps
from ({published}) now"
    )
}

/// The columns as they are to be, in an UPDATE of the row. A table that is not published any more stays, in a gap without an
/// end, as long as it exists.
pub fn continued(published: &str) -> String {
    format!(
        "select pg_catalog.array_agg(relation), pg_catalog.array_agg(coalesce(how, '')),
        pg_catalog.array_agg(case
            when how = was then gaps
            else case
                when is_known is null then ends
                when was = '' then case when how is null then gaps else gaps * ends end
                else coalesce(gaps, '{{}}') + pg_catalog.int8multirange(pg_catalog.int8range(
                    case when was like '%{FILTERED}%' then (select max(lower(g)) from unnest(gaps) g)
                         else pg_catalog.pg_snapshot_xmin(progress.published)::text::bigint end,
                    case when how is not null then here end)) end
                + case when progress.reading = 'initial' then pg_catalog.int8multirange(pg_catalog.int8range(null,
                    coalesce(pg_catalog.pg_snapshot_xmax(progress.started)::text::bigint, here))) else '{{}}' end
            end)
 from (select distinct relation, how from ({published}) p) now
 full join (select relation, was, gaps, true as is_known
            from unnest(progress.covered, progress.covered_how, progress.gaps) k(relation, was, gaps)) known using (relation)
 cross join (select pg_catalog.pg_current_xact_id()::text::bigint as here) h
 cross join lateral (select pg_catalog.int8multirange(pg_catalog.int8range(null, here)) as ends) e
 where how is not null or exists (select from pg_catalog.pg_class where oid = relation)"
    )
}

/// Whether the row does not say yet that a row filter is another one: of a table of the query, as an expression.
pub fn filter_changed(published: &str) -> String {
    format!(
        "exists (select from unnest(progress.covered, progress.covered_how) known(relation, was)
                 join ({published}) now using (relation) where was like '%{FILTERED}%' and how <> was)"
    )
}
