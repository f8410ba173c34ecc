//! What is missing, in the order in which it is made, and who may make it.
//!
//! Order matters twice: the publication comes before the slot, because a slot sees the catalog as it was at its own
//! position; and the slot comes last, outside the transaction of all the rest, because making it waits for every
//! transaction that writes.

use super::{
    adopt, connector,
    facts::{EVENT_STATE, Facts, OutboxFacts, SchemaFacts},
    names,
    record::{self, Kind, Made},
};
use crate::{
    check::{self, Finding, Severity},
    config::{Config, Snapshot},
    pipeline::outbox::Outbox,
    postgres::{
        attempt, dead_letter,
        progress::{self, IS_PUBLISHED, IS_STREAMED, Progress},
        publication::{Publication, Published},
        quote,
        schema::{self, Names, Variant},
        server::Server,
        slot::Slot,
        table::{self, Table},
    },
};

/// The table of versions beside a partitioned outbox.
const VERSIONS: &str = "aggregate_version";

/// What set-up would do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In order. The last makes the slot, where it is missing.
    pub steps: Vec<Step>,
    /// What is wrong with things that exist: set-up does not mend these, and makes nothing beside them.
    pub faults: Vec<Finding>,
    /// What to know of a slot and a publication that are taken over.
    pub notices: Vec<Finding>,
    /// What is made can be written down for teardown.
    pub recorded: bool,
}

/// One thing that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// `create table walpost.outbox`.
    pub title: String,
    /// The statements; for the slot too, as psql would run it.
    pub sql: String,
    pub makes: Vec<Made>,
    pub action: Action,
    /// The right that we lack for it.
    pub lacking: Option<String>,
    /// The stream works without it.
    pub optional: bool,
}

/// How a step is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run its statements in the one transaction.
    Statements,
    /// Run its one statement after that transaction: it makes an index while others write.
    Index,
    /// Run them after that transaction, since they take long and must hold nothing up.
    Rewrite,
    /// Make the slot, after all that.
    Slot,
    /// Take over the slot that is there.
    Adopt,
}

impl Plan {
    /// Steps that we carry out.
    pub fn ours(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.lacking.is_none())
    }

    /// Steps that someone with more rights must carry out before the stream can work.
    pub fn blocked(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.lacking.is_some() && !step.optional)
    }

    /// Steps that we may not carry out and that the stream does not need.
    pub fn skipped(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.lacking.is_some() && step.optional)
    }
}

/// What is asked for beside the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// Missing tables of walpost's own shape are made partitioned by day.
    pub partitioned: bool,
    /// Slot and publication are another's, and are taken over as they are.
    pub adopt: bool,
}

/// Decides what to make.
pub fn plan(config: &Config, facts: &Facts, wish: Wish) -> Plan {
    let variant = if wish.partitioned { Variant::Partitioned } else { Variant::Plain };
    let outboxes: Vec<_> = config.outboxes.iter().zip(&facts.outboxes).collect();
    let mut steps = Vec::new();
    for (outbox, have) in &outboxes {
        if names::is_own(&outbox.columns) {
            let optional = have.table.is_some();
            schema_of(&mut steps, &facts.server, &outbox.name.schema, &have.schema, optional);
        }
    }
    schema_of(&mut steps, &facts.server, names::home(config), &facts.home, true);
    for (outbox, have) in &outboxes {
        own_objects(&mut steps, config, facts, outbox, have, variant);
    }
    emit(&mut steps, config, facts);
    idempotency_key(&mut steps, config, facts);
    dead_letters(&mut steps, config, facts);
    attempts(&mut steps, config, facts);
    progress(&mut steps, config, facts);
    event_state(&mut steps, config, facts, &outboxes);
    let mut unpublishable = None;
    match &config.debezium {
        _ if wish.adopt => {}
        Some(debezium) => {
            let published = connector::publication(&mut steps, config, debezium.connector(), facts);
            unpublishable = published.err();
        }
        None => publication(&mut steps, config, facts, &outboxes),
    }
    roles(&mut steps, config, facts, &outboxes);
    rewrite(&mut steps, facts, &outboxes);
    if wish.adopt {
        steps.extend(adopt::step(config, facts, &steps));
    } else {
        slot(&mut steps, config, facts);
    }
    let recorded = record(&mut steps, &facts.server, names::home(config), &facts.home, facts.record);
    let mut faults = faults(config, facts, &outboxes, wish.adopt);
    faults.extend(unpublishable.map(|fault| {
        let about = format!("publication {}", quote::ident(&config.publication));
        Finding::error(about, format!("cannot be made: {fault}"), "what it names")
    }));
    let mut notices = Vec::new();
    if facts.slot.is_none() && is_begun(facts) {
        let about = format!("slot {}", quote::ident(&config.slot));
        let what = "is missing, and has to be made by walpost run, which has something to finish with it";
        notices.push(Finding::note(about, what, "walpost run"));
    }
    if wish.adopt {
        faults.extend(adopt::faults(config, facts, &outboxes));
        notices = adopt::notices(config, facts, &outboxes);
    }
    Plan { steps, faults, notices, recorded }
}

pub(super) fn statements(
    title: String,
    sql: String,
    makes: Vec<Made>,
    lacking: Option<String>,
    optional: bool,
) -> Step {
    Step { title, sql, makes, action: Action::Statements, lacking, optional }
}

pub(super) fn schema_of(steps: &mut Vec<Step>, server: &Server, name: &str, have: &SchemaFacts, optional: bool) {
    let made = Made::global(Kind::Schema, name);
    if have.exists || steps.iter().any(|step| step.makes.contains(&made)) {
        return;
    }
    let sql = format!("create schema {};", quote::ident(name));
    steps.push(statements(format!("create {made}"), sql, vec![made], lacking_on_database(server), optional));
}

/// Table and function of an outbox of walpost's own shape.
fn own_objects(
    steps: &mut Vec<Step>,
    config: &Config,
    facts: &Facts,
    outbox: &Outbox,
    have: &OutboxFacts,
    variant: Variant,
) {
    if !names::is_own(&outbox.columns) {
        return;
    }
    let names = names::of(config, outbox);
    let lacking = lacking_in_schema(&facts.server, &outbox.name.schema, &have.schema);
    let in_schema = |kind, name: &str| Made::in_schema(kind, &outbox.name.schema, name);
    if have.table.is_none() {
        let mut makes = vec![in_schema(Kind::Table, &outbox.name.table)];
        if variant == Variant::Partitioned {
            makes.push(in_schema(Kind::Table, "idempotency"));
            makes.push(in_schema(Kind::Table, VERSIONS));
            makes.push(in_schema(Kind::Function, "make_partitions"));
        }
        let kind = if variant == Variant::Partitioned { ", partitioned by day" } else { "" };
        steps.push(statements(
            format!("create {}{kind}", makes[0]),
            names.outbox(variant),
            makes,
            lacking.clone(),
            false,
        ));
    }
    if !have.table.as_ref().is_some_and(|table| table.keeps_txid) {
        let made = in_schema(Kind::TriggerFunction, "keep_txid");
        let makes = if steps.iter().any(|step| step.makes.contains(&made)) { vec![] } else { vec![made] };
        let table = quote::qualified(&outbox.name.schema, &outbox.name.table);
        let lacking = match &have.table {
            Some(table) if !table.owned => Some("needs the owner of the outbox".to_owned()),
            Some(_) | None => lacking.clone(),
        };
        steps.push(statements(format!("keep txid of {table} true"), names.txid(), makes, lacking, true));
    }
    let variant = match &have.table {
        None => variant,
        Some(table) if table.kind == table::Kind::Partitioned => Variant::Partitioned,
        Some(_) => Variant::Plain,
    };
    let versioned = versions(steps, outbox, have, &names);
    // For a partitioned table that someone made without the table of keys there is no enqueue that would work.
    let possible = variant == Variant::Plain || have.table.is_none() || have.idempotency_exists;
    if (!have.enqueue_exists || have.enqueue_is_former) && possible && names::is_first_in_schema(config, outbox) {
        let made = in_schema(Kind::Function, "enqueue");
        let lacking = match have.enqueue_is_foreign {
            _ if !versioned => Some("needs the outbox to have the column aggregate_version".to_owned()),
            true => Some(format!("needs the owner of {made}")),
            false => lacking,
        };
        let (title, makes) = match have.enqueue_is_former {
            true => (format!("make {made} anew, with the argument aggregate_version"), vec![]),
            false => (format!("create {made}"), vec![made]),
        };
        steps.push(statements(title, names.enqueue(variant), makes, lacking, true));
    }
}

/// What the versions of aggregates need in a table that was made before there were any. Whether the table has, or will have,
/// their column.
fn versions(steps: &mut Vec<Step>, outbox: &Outbox, have: &OutboxFacts, names: &Names) -> bool {
    let Some(table) = &have.table else { return true };
    let columns = &outbox.columns;
    let has_column = table.column(&columns.aggregate_version.name).is_some();
    let is_own = table.has_txid(outbox) && table.column(&columns.idempotency_key.name).is_some();
    if !is_own || table.partition_of.is_some() {
        return has_column;
    }
    let name = quote::qualified(&outbox.name.schema, &outbox.name.table);
    let lacking = (!table.owned).then(|| format!("needs the owner of {name}"));
    let is_partitioned = table.kind == table::Kind::Partitioned;
    if !has_column {
        let (more, sql, makes) = match is_partitioned {
            true => {
                let made = Made::in_schema(Kind::Table, &outbox.name.schema, VERSIONS);
                (format!(", and {made}"), names.outbox(Variant::Partitioned), vec![made])
            }
            false => (String::new(), names.version_column(), vec![]),
        };
        steps.push(statements(
            format!("add column aggregate_version to {name}{more}"),
            sql,
            makes,
            lacking.clone(),
            true,
        ));
    }
    if !is_partitioned && !have.versions_are_unique {
        let title = format!("create an index that keeps each aggregate_version of {name} unique");
        let (sql, makes) = (names.version_index(), Vec::new());
        steps.push(Step { title, sql, makes, action: Action::Index, lacking, optional: true });
    }
    has_column || table.owned
}

/// The function that makes keys for `enqueue` and `emit`.
fn idempotency_key(steps: &mut Vec<Step>, config: &Config, facts: &Facts) {
    if facts.idempotency_key_exists || !names::makes_keys(config) {
        return;
    }
    let home = names::home(config);
    let made = Made::in_schema(Kind::Function, home, "idempotency_key");
    let lacking = lacking_in_schema(&facts.server, home, &facts.home);
    steps.push(statements(format!("create {made}"), schema::idempotency_key(home), vec![made], lacking, true));
}

/// The functions that send the events of an outbox without a table.
fn emit(steps: &mut Vec<Step>, config: &Config, facts: &Facts) {
    let (Some(outbox), Some(emit)) = (config.messages.first(), &facts.emit) else { return };
    if emit.current {
        return;
    }
    let home = names::home(config);
    let makes = ["emit", "emit_bytes"].map(|name| Made::in_schema(Kind::Function, home, name));
    let lacking = match emit.foreign {
        true => Some(format!("needs the owner of function {}", quote::qualified(home, "emit"))),
        false => lacking_in_schema(&facts.server, home, &facts.home),
    };
    let title = format!("create {} and emit_bytes for messages with the prefix {:?}", makes[0], outbox.name.table);
    steps.push(statements(title, schema::emit(home, &outbox.name.table), makes.into(), lacking, true));
}

/// Without the table an event that can never be delivered stops the stream.
pub(super) fn dead_letters(steps: &mut Vec<Step>, config: &Config, facts: &Facts) {
    if facts.dead_letters_exist {
        return;
    }
    let home = names::home(config);
    let made = Made::in_schema(Kind::Table, home, dead_letter::TABLE);
    let lacking = lacking_in_schema(&facts.server, home, &facts.home);
    steps.push(statements(format!("create {made}"), schema::dead_letter(home), vec![made], lacking, true));
}

/// Without the table a restart begins to count anew.
fn attempts(steps: &mut Vec<Step>, config: &Config, facts: &Facts) {
    if !config.sink.counts_attempts() || facts.attempts_exist {
        return;
    }
    let home = names::home(config);
    let made = Made::in_schema(Kind::Table, home, attempt::TABLE);
    let lacking = lacking_in_schema(&facts.server, home, &facts.home);
    steps.push(statements(format!("create {made}"), schema::attempt(home), vec![made], lacking, true));
}

/// Without the table nothing is ever proven published.
pub(super) fn progress(steps: &mut Vec<Step>, config: &Config, facts: &Facts) {
    if facts.progress_exists {
        return;
    }
    let home = names::home(config);
    let function = |name| Made::in_schema(Kind::Function, home, name);
    let made = [Made::in_schema(Kind::Table, home, progress::TABLE), function(IS_STREAMED), function(IS_PUBLISHED)];
    let lacking = lacking_in_schema(&facts.server, home, &facts.home);
    steps.push(statements(format!("create {}", made[0]), schema::progress(home), made.into(), lacking, true));
}

/// Its outbox is the first of walpost's own shape, which gives walpost its home.
fn event_state(steps: &mut Vec<Step>, config: &Config, facts: &Facts, outboxes: &[(&Outbox, &OutboxFacts)]) {
    let home = names::home(config);
    let own = outboxes.iter().find(|(outbox, _)| names::is_own(&outbox.columns));
    let Some((outbox, have)) = own.filter(|_| !facts.event_state_exists) else { return };
    let made = Made::in_schema(Kind::View, home, EVENT_STATE);
    let lacking = match &have.table {
        Some(table) if !table.may_select => Some("needs the owner of the outbox".to_owned()),
        Some(_) | None => lacking_in_schema(&facts.server, home, &facts.home),
    };
    let sql = names::of(config, outbox).event_state();
    steps.push(statements(format!("create {made}"), sql, vec![made], lacking, true));
}

/// A dump brings ids of another server's transactions. A row that is there, and whose transaction is said to be yet to come,
/// is one of them; it becomes one of ours, which ended before the proof begins. Of all others the proof knows that they
/// are older than itself.
fn rewrite(steps: &mut Vec<Step>, facts: &Facts, outboxes: &[(&Outbox, &OutboxFacts)]) {
    if facts.progress_exists && !facts.progress_is_foreign {
        return;
    }
    let mut sql = String::new();
    let mut lacking = None;
    for (outbox, have) in outboxes {
        let Some(table) = have.table.as_ref().filter(|table| table.has_txid(outbox)) else { continue };
        let name = quote::qualified(&outbox.name.schema, &outbox.name.table);
        let txid = quote::ident(&outbox.columns.txid.name);
        sql.push_str(&format!(
            "update {name} set {txid} = pg_current_xact_id()\nwhere not pg_visible_in_snapshot({txid}, (select pg_current_snapshot()));\n"
        ));
        if !table.owned {
            lacking = Some(format!("needs the owner of {name}"));
        }
    }
    if sql.is_empty() && !facts.progress_is_foreign {
        return;
    }
    let title = match facts.progress_is_foreign {
        true => "begin the proof of publication anew: this database was restored from another server's dump",
        false => "give rows that came from another server a txid of this one",
    };
    let step = Step {
        title: title.to_owned(),
        sql,
        makes: Vec::new(),
        action: Action::Rewrite,
        lacking,
        optional: !facts.progress_is_foreign,
    };
    steps.push(step);
}

fn publication(steps: &mut Vec<Step>, config: &Config, facts: &Facts, outboxes: &[(&Outbox, &OutboxFacts)]) {
    let quoted = quote::ident(&config.publication);
    let lacking_on_table = |outbox: &Outbox, have: &OutboxFacts| match &have.table {
        Some(table) if !table.owned => Some(format!(
            "only the owner of {} may publish it",
            quote::qualified(&outbox.name.schema, &outbox.name.table)
        )),
        Some(_) | None => None,
    };
    let add = |outbox: &Outbox| {
        format!("alter publication {quoted} add table {};", quote::qualified(&outbox.name.schema, &outbox.name.table))
    };
    let Some(publication) = &facts.publication else {
        let made = Made::global(Kind::Publication, &config.publication);
        let sql = match outboxes {
            [] => names::at_home(config).publication_of_messages(),
            [(first, _), more @ ..] => {
                let mut sql = names::of(config, first).publication();
                more.iter().for_each(|(outbox, _)| sql.push_str(&format!("\n{}\n", add(outbox))));
                sql
            }
        };
        let lacking = lacking_on_database(&facts.server)
            .or_else(|| outboxes.iter().find_map(|(outbox, have)| lacking_on_table(outbox, have)));
        steps.push(statements(format!("create {made}"), sql, vec![made], lacking, false));
        return;
    };
    for (outbox, have) in outboxes {
        if !publication.all_tables && !in_publication(publication, outbox, have.table.as_ref()) {
            let lacking = if publication.owned {
                lacking_on_table(outbox, have)
            } else {
                Some(format!("only the owner of publication {quoted} may alter it"))
            };
            let title = format!(
                "add table {} to publication {quoted}",
                quote::qualified(&outbox.name.schema, &outbox.name.table)
            );
            steps.push(statements(title, add(outbox), Vec::new(), lacking, false));
        }
    }
}

/// The table is in the publication. Partitions that stand in its place count: that is a fault to report, not a table to add.
fn in_publication(publication: &Publication, outbox: &Outbox, table: Option<&Table>) -> bool {
    let partitions = table.is_some_and(|table| table.kind == table::Kind::Partitioned)
        && !publication.via_partition_root
        && !publication.tables.is_empty();
    partitions || publication.published(&outbox.name.schema, &outbox.name.table).is_some()
}

fn roles(steps: &mut Vec<Step>, config: &Config, facts: &Facts, outboxes: &[(&Outbox, &OutboxFacts)]) {
    let may_make = facts.server.role.create_role || facts.server.role.superuser;
    let lacks = || format!("needs the attribute CREATEROLE, which {} lacks", quote::ident(&facts.server.role.name));
    let made = |steps: &[Step]| {
        let all: Vec<_> = facts.missing_roles.iter().map(|role| Made::global(Kind::Role, role)).collect();
        all.into_iter().filter(|made| !steps.iter().any(|step| step.makes.contains(made))).collect::<Vec<_>>()
    };
    let mut at_home = false;
    for (outbox, have) in outboxes.iter().filter(|(outbox, _)| names::is_own(&outbox.columns)) {
        let versions = Made::in_schema(Kind::Table, &outbox.name.schema, VERSIONS);
        if have.granted && !steps.iter().any(|step| step.makes.contains(&versions)) {
            continue;
        }
        at_home |= outbox.name.schema == names::home(config);
        let makes = made(steps);
        let lacking = if !makes.is_empty() && !may_make {
            Some(lacks())
        } else if have.table.as_ref().is_some_and(|table| !table.owned) || !grants_enqueue(steps, have) {
            Some("needs the owner of the outbox and of its function enqueue".to_owned())
        } else {
            None
        };
        let title = if makes.is_empty() {
            format!("grant the roles their rights on {}", quote::qualified(&outbox.name.schema, &outbox.name.table))
        } else {
            format!("create {}", makes.iter().map(Made::to_string).collect::<Vec<_>>().join(", "))
        };
        steps.push(statements(title, names::of(config, outbox).roles(), makes, lacking, true));
    }
    match &facts.emit {
        Some(emit) if !emit.granted && !at_home => {
            let makes = made(steps);
            let lacking = match emit.foreign {
                _ if !makes.is_empty() && !may_make => Some(lacks()),
                true => Some("needs the owner of the function emit".to_owned()),
                false => None,
            };
            let title = "grant the roles their rights on the functions emit and emit_bytes".to_owned();
            steps.push(statements(title, names::at_home(config).roles(), makes, lacking, true));
        }
        Some(_) | None => {}
    }
}

/// There is, or will be, the function that the roles are granted.
fn grants_enqueue(steps: &[Step], have: &OutboxFacts) -> bool {
    let made = |made: &Made| made.kind == Kind::Function && made.name == "enqueue";
    have.enqueue_exists || steps.iter().any(|step| step.lacking.is_none() && step.makes.iter().any(made))
}

pub(super) fn slot(steps: &mut Vec<Step>, config: &Config, facts: &Facts) {
    // A snapshot begins with the slot: then `run` makes it.
    if facts.slot.is_some() || config.snapshot == Snapshot::Initial || is_begun(facts) {
        return;
    }
    let made = Made::global(Kind::Slot, &config.slot);
    let sql = slot_statement(&config.slot, config.failover);
    let role = quote::ident(&facts.server.role.name);
    let lacking = facts
        .may_not_replicate
        .then(|| format!("alter role {role} replication (Amazon RDS: grant rds_replication to {role})"));
    let step = Step {
        title: format!("create {made}"),
        sql,
        makes: vec![made],
        action: Action::Slot,
        lacking,
        optional: false,
    };
    steps.push(step);
}

/// `run` has begun something with the slot, and makes it where it is gone.
fn is_begun(facts: &Facts) -> bool {
    facts.own().is_some_and(Progress::is_under_way)
}

/// What psql would run to make the slot.
pub fn slot_statement(slot: &str, failover: bool) -> String {
    let name = quote::literal(slot);
    let more = if failover { ", failover => true" } else { "" };
    format!(
        "select pg_create_logical_replication_slot({name}, 'pgoutput'{more})\nwhere not exists (select from pg_replication_slots \
         where slot_name = {name});"
    )
}

/// The record of what is made, right after its schema; whether there will be one.
pub(super) fn record(
    steps: &mut Vec<Step>,
    server: &Server,
    home: &str,
    have: &SchemaFacts,
    exists: Option<bool>,
) -> bool {
    if let Some(may_write) = exists {
        return may_write;
    }
    if steps.iter().all(|step| step.makes.is_empty() || step.makes.iter().all(|made| made.kind == Kind::Schema)) {
        // Nothing else is made, so a schema for the record alone is not made either.
        steps.retain(|step| !step.makes.iter().any(|made| made.kind == Kind::Schema));
        return false;
    }
    let lacking = lacking_in_schema(server, home, have);
    let recorded = lacking.is_none();
    let made = Made::in_schema(Kind::Table, home, record::TABLE);
    let sql = schema::record(home);
    let after_schemas = steps.iter().take_while(|step| step.makes.iter().any(|made| made.kind == Kind::Schema)).count();
    steps.insert(after_schemas, statements(format!("create {made}"), sql, vec![made], lacking, true));
    recorded
}

pub(super) fn lacking_on_database(server: &Server) -> Option<String> {
    (!server.role.create_in_database).then(|| {
        format!("grant create on database {} to {}", quote::ident(&server.database), quote::ident(&server.role.name))
    })
}

/// What we lack for making something in a schema that exists, or that is made before.
pub(super) fn lacking_in_schema(server: &Server, name: &str, have: &SchemaFacts) -> Option<String> {
    if have.exists {
        (!have.create)
            .then(|| format!("grant create on schema {} to {}", quote::ident(name), quote::ident(&server.role.name)))
    } else {
        lacking_on_database(server)
    }
}

/// Errors of what exists, and of what only its owner can make: the state as it would be after the steps.
fn faults(config: &Config, facts: &Facts, outboxes: &[(&Outbox, &OutboxFacts)], adopt: bool) -> Vec<Finding> {
    let mut faults = check::server(&facts.server, facts.slot.as_ref(), config.status_interval);
    for (outbox, have) in outboxes {
        if have.table.is_some() || !names::is_own(&outbox.columns) {
            faults.extend(check::outbox(outbox, have.table.as_ref(), &facts.server.role));
        }
    }
    if let Some(publication) = facts.publication.as_ref().filter(|_| !adopt && config.debezium.is_none()) {
        let mut after = publication.clone();
        let mut tables = Vec::new();
        for (outbox, have) in outboxes {
            if let Some(table) = &have.table {
                if !publication.all_tables && !in_publication(publication, outbox, Some(table)) {
                    after.tables.push(added(outbox, table));
                }
            }
            tables.push((*outbox, have.table.as_ref()));
        }
        faults.extend(check::publication(&config.publication, Some(&after), &tables, facts.slot.is_some()));
    }
    faults.extend(check::failover(config.failover, &facts.server, facts.slot.as_ref()));
    let slot = facts.slot.as_ref();
    match check::loss(config, slot, facts.own()) {
        // `run` makes it anew, and knows what was lost with it.
        Some(loss) if slot.is_none_or(Slot::lost) => faults.push(loss),
        Some(_) | None if slot.is_none() => {}
        Some(_) | None => faults.extend(check::slot(&config.slot, slot, &facts.server.database, None)),
    }
    faults.retain(|finding| finding.severity == Severity::Error);
    faults
}

fn added(outbox: &Outbox, table: &Table) -> Published {
    Published {
        schema: outbox.name.schema.clone(),
        table: outbox.name.table.clone(),
        row_filter: None,
        columns: None,
        has_replica_identity: table.has_replica_identity,
    }
}
