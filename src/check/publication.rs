//! Findings about the publication.

use super::{Finding, needs};
use crate::{
    config::Config,
    pipeline::outbox::Outbox,
    postgres::{
        publication::{Publication, Published},
        quote,
        table::{Kind, Table},
    },
    setup::names,
};

/// What is wrong with the publication `name`, seen from the outboxes (each with its table, where there is one).
/// `slot_exists`: a slot that is older than the publication cannot see it.
pub fn publication(
    name: &str,
    publication: Option<&Publication>,
    outboxes: &[(&Outbox, Option<&Table>)],
    slot_exists: bool,
) -> Vec<Finding> {
    let quoted = quote::ident(name);
    let about = format!("publication {quoted}");
    let Some(publication) = publication else {
        let slot = if slot_exists {
            "; the slot is older than that: if the stream still does not find it, drop the slot and make it again (what it has \
             not sent must then be sent from the table)"
        } else {
            ""
        };
        return vec![Finding::error(
            about,
            "does not exist in this database",
            format!(
                "walpost setup, or: create publication {quoted}{} with (publish = 'insert', \
                 publish_via_partition_root = true){slot}",
                for_tables(outboxes)
            ),
        )];
    };
    let mut findings = Vec::new();
    let inserts_only = format!("alter publication {quoted} set (publish = 'insert')");
    if !publication.inserts && !outboxes.is_empty() {
        findings.push(Finding::error(&about, "does not publish inserts: no event would be sent", &inserts_only));
    }
    findings.extend(changes(publication, &about, &inserts_only));
    findings.extend(others(publication, &about, &quoted, outboxes));
    for (outbox, table) in outboxes {
        if let Some(table) = table {
            findings.extend(coverage(publication, &about, &quoted, outbox, table));
        }
    }
    findings
}

/// The functions that send messages `exist` and are not `current`: they take another prefix than the configuration has.
pub fn emit(config: &Config, exist: bool, current: bool) -> Option<Finding> {
    (exist && !current).then(|| {
        Finding::warning(
            format!("function {}", quote::qualified(names::home(config), "emit")),
            format!(
                "takes another prefix than {} where it is given none: whatever it sends so may be nobody's",
                config.prefixes()
            ),
            "walpost setup, which makes it anew",
        )
    })
}

/// ` for table …`, or nothing where all events are messages.
fn for_tables(outboxes: &[(&Outbox, Option<&Table>)]) -> String {
    let tables: Vec<_> = outboxes.iter().map(|(outbox, _)| table_name(outbox)).collect();
    if tables.is_empty() { String::new() } else { format!(" for table {}", tables.join(", ")) }
}

/// Updates and deletes are no events, and fail in the application where a table cannot be identified by a key.
fn changes(publication: &Publication, about: &str, inserts_only: &str) -> Option<Finding> {
    let what = match (publication.updates, publication.deletes) {
        (true, true) => "updates and deletes",
        (true, false) => "updates",
        (false, true) => "deletes",
        (false, false) => {
            return publication.truncates.then(|| {
                Finding::note(about, "publishes truncates too, which are no events and are passed over", inserts_only)
            });
        }
    };
    let failing: Vec<_> = publication.tables.iter().filter(|table| !table.has_replica_identity).collect();
    Some(if failing.is_empty() {
        Finding::warning(about, format!("publishes {what} too, which are no events: work for nothing"), inserts_only)
    } else {
        Finding::error(
            about,
            format!(
                "publishes {what}, and {} no key to tell rows by: {what} of it fail in the application",
                list(&failing)
            ),
            inserts_only,
        )
    })
}

/// `a and b have`, at most five by name.
fn list(tables: &[&Published]) -> String {
    let names: Vec<_> = tables.iter().take(5).map(|table| quote::qualified(&table.schema, &table.table)).collect();
    match tables.len() {
        1 => format!("{} has", names[0]),
        n if n > names.len() => format!("{} and {} more have", names.join(", "), n - names.len()),
        _ => format!("{} have", names.join(", ")),
    }
}

/// Tables that are decoded, sent and thrown away.
pub(super) fn others(
    publication: &Publication,
    about: &str,
    quoted: &str,
    outboxes: &[(&Outbox, Option<&Table>)],
) -> Option<Finding> {
    if publication.all_tables {
        return Some(Finding::warning(
            about,
            "is for all tables: every change of the database is decoded, sent to walpost and thrown away there",
            format!(
                "stop walpost, then: drop publication {quoted}; create publication {quoted}{} with (publish = \
                 'insert', publish_via_partition_root = true). The slot sees the new one only from then on: do it when walpost \
                 has caught up",
                for_tables(outboxes)
            ),
        ));
    }
    let is_outbox = |entry: &&Published| {
        outboxes.iter().any(|(outbox, table)| {
            outbox.name.schema == entry.schema && outbox.name.table == entry.table
                // Without publish_via_partition_root the partitions stand there instead, which coverage() reports.
                || table.is_some_and(|table| table.kind == Kind::Partitioned) && !publication.via_partition_root
        })
    };
    let others: Vec<_> = publication.tables.iter().filter(|entry| !is_outbox(entry)).collect();
    (!others.is_empty()).then(|| {
        let first = quote::qualified(&others[0].schema, &others[0].table);
        Finding::note(
            about,
            match others.len() {
                1 => format!("publishes {first}, which is no outbox of this configuration"),
                n => format!("publishes {n} tables that are no outbox of this configuration, {first} among them"),
            },
            format!("alter publication {quoted} drop table {first}"),
        )
    })
}

/// Whether the rows of one outbox pass, whole.
pub(super) fn coverage(
    publication: &Publication,
    about: &str,
    quoted: &str,
    outbox: &Outbox,
    table: &Table,
) -> Vec<Finding> {
    let name = table_name(outbox);
    if table.kind == Kind::Partitioned && !publication.via_partition_root {
        return vec![Finding::error(
            about,
            format!("publishes the partitions of {name} under their own names, which walpost does not know"),
            format!("alter publication {quoted} set (publish_via_partition_root = true)"),
        )];
    }
    let Some(entry) = publication.published(&outbox.name.schema, &outbox.name.table) else {
        return vec![Finding::error(
            about,
            format!("does not publish {name}: none of its events would be sent"),
            format!("alter publication {quoted} add table {name}"),
        )];
    };
    let mut findings = Vec::new();
    let again = format!("alter publication {quoted} drop table {name}; alter publication {quoted} add table {name}");
    if let Some(filter) = &entry.row_filter {
        findings.push(Finding::warning(
            about,
            format!("publishes only those rows of {name} where {filter}"),
            format!("nothing, if another slot sends the rest; else: {again}"),
        ));
    }
    if let Some(columns) = &entry.columns {
        // A column that the table lacks, or that is generated, is reported with the table.
        let in_table = |column: &str| table.columns.iter().any(|one| one.name == column && !one.generated);
        let withheld: Vec<_> = needs(outbox)
            .into_iter()
            .filter(|need| in_table(&need.column) && !columns.contains(&need.column))
            .map(|need| quote::ident(&need.column))
            .collect();
        if !withheld.is_empty() {
            findings.push(Finding::error(
                about,
                format!("withholds columns of {name} that walpost needs: {}", withheld.join(", ")),
                again,
            ));
        } else if let Some(lost) = optional(outbox).find(|column| in_table(column) && !columns.contains(*column)) {
            findings.push(Finding::warning(
                about,
                format!("withholds column {} of {name}: its header is not sent", quote::ident(lost)),
                again,
            ));
        }
    }
    findings
}

fn optional(outbox: &Outbox) -> impl Iterator<Item = &String> {
    let columns = &outbox.columns;
    [
        &columns.aggregate_type,
        &columns.event_type,
        &columns.headers,
        &columns.destination,
        &columns.idempotency_key,
        &columns.aggregate_version,
        &columns.occurred_at,
        &columns.traceparent,
        &columns.tracestate,
    ]
    .into_iter()
    .map(|column| &column.name)
}

fn table_name(outbox: &Outbox) -> String {
    quote::qualified(&outbox.name.schema, &outbox.name.table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Severity, needs::tests::default_outbox, outbox::tests::default_table};

    fn default_publication() -> Publication {
        Publication {
            owned: true,
            all_tables: false,
            inserts: true,
            updates: false,
            deletes: false,
            truncates: false,
            via_partition_root: true,
            tables: vec![entry("walpost", "outbox")],
            named: vec![("walpost".to_owned(), "outbox".to_owned())],
        }
    }

    fn entry(schema: &str, table: &str) -> Published {
        Published {
            schema: schema.to_owned(),
            table: table.to_owned(),
            row_filter: None,
            columns: Some(default_table().columns.into_iter().map(|column| column.name).collect()),
            has_replica_identity: true,
        }
    }

    fn found(change: impl FnOnce(&mut Publication), table: &Table) -> Vec<Finding> {
        let mut facts = default_publication();
        change(&mut facts);
        publication("walpost", Some(&facts), &[(&default_outbox(), Some(table))], true)
    }

    fn one(change: impl FnOnce(&mut Publication), severity: Severity, what: &str) {
        let findings = found(change, &default_table());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, severity, "{findings:?}");
        assert!(findings[0].what.contains(what), "{findings:?}");
    }

    #[test]
    fn a_publication_as_setup_makes_it_is_right() {
        assert_eq!(found(|_| {}, &default_table()), []);
        assert_eq!(found(|facts| facts.tables[0].columns = None, &default_table()), [], "PostgreSQL 14");
    }

    #[test]
    fn each_fault_is_found() {
        use Severity::{Error, Note, Warning};
        one(|facts| facts.inserts = false, Error, "does not publish inserts");
        one(|facts| facts.truncates = true, Note, "truncates");
        one(|facts| facts.updates = true, Warning, "publishes updates too");
        one(|facts| facts.all_tables = true, Warning, "all tables");
        one(|facts| facts.tables.push(entry("app", "Orders")), Note, "publishes app.\"Orders\", which is no outbox");
        one(|facts| facts.tables.clear(), Error, "does not publish walpost.outbox");
        one(|facts| facts.tables[0].row_filter = Some("(a = 1)".into()), Warning, "where (a = 1)");
        let withhold = |facts: &mut Publication, column: &str| {
            let columns = facts.tables[0].columns.as_mut().unwrap();
            columns.retain(|one| one != column);
        };
        one(|facts| withhold(facts, "payload"), Error, "needs: payload");
        one(|facts| withhold(facts, "headers"), Warning, "column headers");
    }

    #[test]
    fn deletes_of_a_table_without_a_key_fail_in_the_application() {
        one(
            |facts| {
                facts.deletes = true;
                facts.tables[0].has_replica_identity = false;
            },
            Severity::Error,
            "walpost.outbox has no key",
        );
    }

    #[test]
    fn partitions_must_come_under_the_name_of_their_root() {
        let partitioned = Table { kind: Kind::Partitioned, ..default_table() };
        assert_eq!(found(|_| {}, &partitioned), []);
        let findings = found(
            |facts| {
                facts.via_partition_root = false;
                facts.tables = vec![entry("walpost", "outbox_20260102"), entry("walpost", "outbox_20260103")];
            },
            &partitioned,
        );
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].remedy, "alter publication walpost set (publish_via_partition_root = true)");
    }

    #[test]
    fn a_missing_publication_names_all_tables_and_the_trap_of_an_older_slot() {
        let outbox = default_outbox();
        let remedy = |slot_exists| publication("My Pub", None, &[(&outbox, None)], slot_exists).remove(0).remedy;
        assert!(remedy(false).contains("create publication \"My Pub\" for table walpost.outbox with"));
        assert!(!remedy(false).contains("older") && remedy(true).contains("older"));
    }
}
