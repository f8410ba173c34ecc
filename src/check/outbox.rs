//! Findings about an outbox table.

use super::{Finding, needs, needs::reads};
use crate::{
    pipeline::outbox::{Format, Outbox},
    postgres::{
        quote,
        server::Role,
        table::{Kind, Table},
    },
};

/// What is wrong with the table of an outbox, without regard to publication and slot.
pub fn outbox(outbox: &Outbox, table: Option<&Table>, role: &Role) -> Vec<Finding> {
    let name = quote::qualified(&outbox.name.schema, &outbox.name.table);
    let about = format!("table {name}");
    let Some(table) = table else {
        return vec![Finding::error(
            about,
            "does not exist, or its schema hides it from this role",
            format!(
                "walpost setup (for a table of walpost's shape); else create it, or: grant usage on schema {} to {}",
                quote::ident(&outbox.name.schema),
                quote::ident(&role.name)
            ),
        )];
    };
    let mut findings = Vec::new();
    if table.kind == Kind::NoTable {
        findings.push(Finding::error(
            &about,
            "is not a table: what is inserted into it is not in the log under its name",
            "name the table itself as `table` in the configuration",
        ));
        return findings;
    }
    if !table.logged {
        findings.push(Finding::error(
            &about,
            "is unlogged or temporary: its rows are not in the log and none can be sent",
            format!("alter table {name} set logged"),
        ));
    }
    // A connector may take partitions under their own names.
    if let (Some(root), Format::Native | Format::CloudEvents(_)) = (&table.partition_of, &outbox.format) {
        findings.push(Finding::error(
            &about,
            format!("is a partition of {root}; its rows are published under that name"),
            format!("table = {root:?} in the configuration"),
        ));
    }
    let absent = |column: &str, part| {
        Finding::error(
            &about,
            format!("has no column {}, which {part} needs", quote::ident(column)),
            format!(
                "alter table {name} add column {} …, or give `{part}` another column in the configuration",
                quote::ident(column)
            ),
        )
    };
    for need in needs(outbox) {
        match table.columns.iter().find(|column| column.name == need.column) {
            None => findings.push(absent(&need.column, need.part)),
            Some(column) if column.generated => findings.push(Finding::error(
                &about,
                format!(
                    "column {}, which {} needs, is generated: the log does not have it",
                    quote::ident(&need.column),
                    need.part
                ),
                format!(
                    "alter table {name} alter column {} drop expression, or from PostgreSQL 18 on publish it: \
                     alter publication … set (publish_generated_columns = stored)",
                    quote::ident(&need.column)
                ),
            )),
            Some(_) => {}
        }
    }
    for need in reads(outbox) {
        if !table.columns.iter().any(|column| column.name == need.column) {
            findings.push(absent(&need.column, need.part));
        }
    }
    let txid = &outbox.columns.txid;
    match table.columns.iter().find(|column| column.name == txid.name) {
        Some(column) if column.type_name != "xid8" && txid.named => findings.push(Finding::error(
            &about,
            format!("has column {} as {}: only xid8 says which transaction wrote a row", txid.name, column.type_name),
            "name another column as `txid` in the configuration, or leave it out",
        )),
        Some(column) if column.type_name == "xid8" && !table.keeps_txid => findings.push(Finding::note(
            &about,
            format!(
                "has no trigger that keeps column {} true: rows that come from another server may be called published",
                quote::ident(&txid.name)
            ),
            "walpost setup (for a table of walpost's shape); else one as in sql/txid.sql",
        )),
        Some(_) | None => {}
    }
    if table.hides_rows {
        findings.push(Finding::warning(
            &about,
            "has row security that hides rows from this role: the stream has all of them, but what reads the table does not",
            format!("alter role {} bypassrls", quote::ident(&role.name)),
        ));
    }
    if !table.may_select {
        findings.push(Finding::note(
            &about,
            "may not be read by this role: the stream does not need it, comparing table and topics does",
            format!("grant select on {name} to {}", quote::ident(&role.name)),
        ));
    }
    findings
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        check::{Severity, needs::tests::default_outbox, server::tests::default_server},
        postgres::table::Column,
    };

    /// `walpost.outbox` as `sql/outbox.sql` makes it.
    pub(in crate::check) fn default_table() -> Table {
        let names = ["id", "seq", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "destination"];
        let more = ["idempotency_key", "occurred_at", "aggregate_version", "txid"];
        let column = |name: &&str| Column {
            name: (*name).to_owned(),
            type_name: if *name == "txid" { "xid8" } else { "text" }.to_owned(),
            generated: false,
        };
        Table {
            oid: 16_400,
            kind: Kind::Plain,
            logged: true,
            columns: names.iter().chain(&more).map(column).collect(),
            owned: true,
            may_select: true,
            has_replica_identity: true,
            hides_rows: false,
            partition_of: None,
            keeps_txid: true,
        }
    }

    fn found(change: impl FnOnce(&mut Table)) -> Vec<(Severity, String)> {
        let mut table = default_table();
        change(&mut table);
        let findings = outbox(&default_outbox(), Some(&table), &default_server().role);
        findings.into_iter().map(|finding| (finding.severity, finding.what)).collect()
    }

    #[test]
    fn a_table_as_setup_makes_it_is_right() {
        assert_eq!(found(|_| {}), []);
    }

    #[test]
    fn each_fault_is_found() {
        let one = |change: fn(&mut Table), severity, what: &str| {
            let findings = found(change);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!(findings[0].0, severity);
            assert!(findings[0].1.contains(what), "{findings:?}");
        };
        one(|table| table.kind = Kind::NoTable, Severity::Error, "not a table");
        one(|table| table.logged = false, Severity::Error, "unlogged");
        one(|table| table.partition_of = Some("app.events".into()), Severity::Error, "partition of app.events");
        one(|table| table.columns.retain(|column| column.name != "payload"), Severity::Error, "no column payload");
        one(|table| table.columns[2].generated = true, Severity::Error, "aggregate_type, which route.topic needs");
        one(|table| table.hides_rows = true, Severity::Warning, "row security");
        one(|table| table.keeps_txid = false, Severity::Note, "no trigger that keeps column txid true");
        one(|table| table.may_select = false, Severity::Note, "may not be read");
        assert!(found(|table| table.columns.retain(|column| column.name != "headers")).is_empty(), "optional");
    }

    #[test]
    fn a_column_that_reading_the_table_needs_must_be_there_where_it_is_named() {
        let mut named = default_outbox();
        named.columns.txid.named = true;
        let found = |change: fn(&mut Table)| {
            let mut table = default_table();
            change(&mut table);
            outbox(&named, Some(&table), &default_server().role).into_iter().map(|finding| finding.what).next()
        };
        assert_eq!(found(|_| {}), None);
        let without = found(|table| table.columns.retain(|column| column.name != "txid")).unwrap();
        assert!(without.contains("has no column txid"), "{without}");
        let other = found(|table| table.columns.last_mut().unwrap().type_name = "bigint".to_owned()).unwrap();
        assert!(other.contains("txid as bigint"), "{other}");
    }

    #[test]
    fn a_missing_table_is_one_finding() {
        let mut hostile = default_outbox();
        hostile.name.schema = "My App".to_owned();
        let findings = outbox(&hostile, None, &default_server().role);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].about, "table \"My App\".outbox");
    }
}
