//! Findings about what a connector works with: the publication that Debezium made or walpost is to make, a slot that the
//! connector still reads, topics that others made.

use super::{Finding, publication};
use crate::{
    config::{
        Config,
        connector::{Autocreate, Connector, TopicCreation},
    },
    kafka::facts::Kafka,
    pipeline::outbox::Outbox,
    postgres::{publication::Publication, quote, slot::Slot, table::Table},
};

/// What Debezium's driver calls its replication session.
const DEBEZIUM: &str = "Debezium";

/// Whether the publication is what the connector needs, and if it is missing, who makes it.
pub fn connector_publication(
    config: &Config,
    connector: &Connector,
    found: Option<&Publication>,
    outboxes: &[(&Outbox, Option<&Table>)],
) -> Vec<Finding> {
    let quoted = quote::ident(&config.publication);
    let about = format!("publication {quoted}");
    let there: Vec<_> = outboxes.iter().filter(|(_, table)| table.is_some()).map(|(outbox, _)| name(outbox)).collect();
    let Some(found) = found else {
        let what = "does not exist in this database";
        return vec![match connector.publication.autocreate {
            Autocreate::Disabled => Finding::error(
                about,
                format!("{what}, and publication.autocreate.mode is disabled"),
                format!("walpost setup, or: create publication {quoted} for table {}", or_ellipsis(&there)),
            ),
            Autocreate::Filtered if there.is_empty() => Finding::error(
                about,
                format!("{what}, and the database has no table that the connector takes for it"),
                "create the outbox table, or mend table.include.list",
            ),
            Autocreate::Filtered | Autocreate::AllTables | Autocreate::NoTables => Finding::note(
                about,
                format!("{what} yet"),
                format!(
                    "nothing: walpost run makes it (publication.autocreate.mode = {}), with the rights for that",
                    connector.publication.autocreate.name()
                ),
            ),
        }];
    };
    let mut findings = Vec::new();
    let all = "insert, update, delete, truncate";
    if !found.inserts {
        findings.push(Finding::error(
            &about,
            "does not publish inserts: no event would be sent",
            format!("alter publication {quoted} set (publish = '{all}')"),
        ));
    }
    findings.extend(operations(connector, found, &about, &quoted));
    let without_key = found.tables.iter().find(|table| !table.has_replica_identity);
    if let Some(table) = without_key.filter(|_| found.updates || found.deletes) {
        findings.push(Finding::warning(
            &about,
            format!(
                "publishes updates or deletes, and {} has no key to tell rows by: there they fail in the application",
                quote::qualified(&table.schema, &table.table)
            ),
            "give the table a primary key or a replica identity, or publish inserts only where the outbox is all that is read",
        ));
    }
    if found.all_tables && connector.publication.autocreate == Autocreate::AllTables {
        findings.push(Finding::note(
            &about,
            "is for all tables, as the connector asks: every change of the database is decoded and sent to walpost",
            "publication.autocreate.mode = filtered and another publication.name, once the slot has passed what is in the log",
        ));
    } else {
        findings.extend(publication::others(found, &about, &quoted, outboxes));
    }
    for (outbox, table) in outboxes {
        let Some(table) = table else { continue };
        let has = found.published(&outbox.name.schema, &outbox.name.table).is_some();
        if !has && connector.publication.autocreate == Autocreate::Filtered && !found.all_tables {
            findings.push(Finding::note(
                &about,
                format!("does not publish {} yet", name(outbox)),
                "nothing: walpost run adds it (publication.autocreate.mode = filtered), with the rights for that",
            ));
        } else {
            findings.extend(publication::coverage(found, &about, &quoted, outbox, table));
        }
    }
    findings
}

/// Operations that become records where no event router drops them.
fn operations(connector: &Connector, found: &Publication, about: &str, quoted: &str) -> Option<Finding> {
    if connector.router().is_some() {
        return None;
    }
    let skipped = connector.skipped;
    let missing: Vec<_> = [
        ("updates", !found.updates && !skipped.update),
        ("deletes", !found.deletes && !skipped.delete),
        ("truncates", !found.truncates && !skipped.truncate),
    ]
    .into_iter()
    .filter_map(|(word, is_missing)| is_missing.then_some(word))
    .collect();
    (!missing.is_empty()).then(|| {
        Finding::warning(
            about,
            format!("does not publish {}, of which the connector makes records", missing.join(", ")),
            format!(
                "alter publication {quoted} set (publish = 'insert, update, delete, truncate'), or skipped.operations"
            ),
        )
    })
}

/// The slot while the connector itself, or something else that is not walpost, reads it.
pub fn connector_slot(config: &Config, slot: Option<&Slot>) -> Option<Finding> {
    let slot = slot.filter(|slot| slot.active)?;
    let application = slot.holder.as_ref().and_then(|holder| holder.application_name.as_deref())?;
    application.starts_with(DEBEZIUM).then(|| {
        Finding::warning(
            format!("slot {}", quote::ident(&config.slot)),
            format!("is in use by the connector ({application:?}): walpost run would wait for it"),
            "stop the connector, then walpost run: it goes on where the connector's slot is confirmed",
        )
    })
}

/// Topics that are there and are not as the connector would have them made.
pub fn connector_topics(creation: &TopicCreation, facts: &Kafka) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, topic) in &facts.topics {
        let Some(group) = creation.group(name) else { continue };
        let wanted = group.partitions.and_then(|count| usize::try_from(count).ok());
        if let Some(wanted) = wanted.filter(|wanted| *wanted != topic.partitions) {
            findings.push(Finding::note(
                format!("topic {name}"),
                format!("has {} partitions; topic.creation.{}.partitions is {wanted}", topic.partitions, group.name),
                "nothing: topics that exist are left as they are, as Kafka Connect leaves them",
            ));
        }
    }
    findings
}

fn name(outbox: &Outbox) -> String {
    quote::qualified(&outbox.name.schema, &outbox.name.table)
}

fn or_ellipsis(names: &[String]) -> String {
    if names.is_empty() { "…".to_owned() } else { names.join(", ") }
}
