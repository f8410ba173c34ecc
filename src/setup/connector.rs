//! What a connector's `walpost run` makes in the database: what Debezium makes, and walpost's own tables beside it.
//!
//! The publication is made by `publication.autocreate.mode`. An existing one is altered where it is a filtered one that lacks
//! tables; what else it has stays. The slot is made where it is missing and no snapshot makes it.

use tokio::sync::watch;
use tokio_postgres::error::SqlState;

use super::{
    apply::{self, ApplyError, News},
    facts::{Facts, OutboxFacts},
    plan::{self, Action, Plan, Step},
    record::{Kind, Made},
    tables,
};
use crate::{
    check,
    config::{
        Config, TablesError,
        connector::{Autocreate, Connector},
    },
    pipeline::outbox::{Outbox, TableName},
    postgres::{self, ErrorKind, publication::Publication, quote, slot::SlotError, sql, table},
};

/// A publication that cannot be made as the connector asks for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(
        "publication {publication} does not exist, and publication.autocreate.mode is disabled: create publication {publication} \
         for table …, walpost setup, or another publication.autocreate.mode"
    )]
    Missing { publication: String },
    #[error(
        "no table of the database is one that the connector takes ({taken}), and publication {publication} is to be filtered: \
         create the table, or mend the list"
    )]
    NoTables { publication: String, taken: String },
}

/// What `run` makes.
pub fn plan(config: &Config, connector: &Connector, facts: &Facts) -> Result<Plan, Fault> {
    let mut steps = Vec::new();
    plan::schema_of(&mut steps, &facts.server, super::names::home(config), &facts.home, true);
    plan::dead_letters(&mut steps, config, facts);
    plan::progress(&mut steps, config, facts);
    let autocreate = connector.publication.autocreate;
    if facts.publication.is_none() && autocreate == Autocreate::Disabled {
        return Err(Fault::Missing { publication: quote::ident(&config.publication) });
    }
    if autocreate != Autocreate::Disabled {
        publication(&mut steps, config, connector, facts)?;
    }
    // What was lost with a slot is for the stream to answer.
    if check::loss(config, facts.slot.as_ref(), facts.own()).is_none() {
        plan::slot(&mut steps, config, facts);
    }
    let recorded = plan::record(&mut steps, &facts.server, super::names::home(config), &facts.home, facts.record);
    Ok(Plan { steps, faults: Vec::new(), notices: Vec::new(), recorded })
}

/// The publication as the connector's mode has it; as filtered, where the mode leaves it to others.
pub(super) fn publication(
    steps: &mut Vec<Step>,
    config: &Config,
    connector: &Connector,
    facts: &Facts,
) -> Result<(), Fault> {
    let quoted = quote::ident(&config.publication);
    let filtered = matches!(connector.publication.autocreate, Autocreate::Filtered | Autocreate::Disabled);
    let tables: Vec<(&Outbox, &OutboxFacts)> =
        config.outboxes.iter().zip(&facts.outboxes).filter(|(_, have)| have.table.is_some()).collect();
    if filtered && tables.is_empty() {
        let taken = match &config.outboxes[..] {
            [] => patterns(connector),
            named => named.iter().map(|outbox| outbox.name.to_string()).collect::<Vec<_>>().join(", "),
        };
        return Err(Fault::NoTables { publication: quoted, taken });
    }
    let names = |tables: &[(&Outbox, &OutboxFacts)]| {
        let names = tables.iter().map(|(outbox, _)| quote::qualified(&outbox.name.schema, &outbox.name.table));
        names.collect::<Vec<_>>().join(", ")
    };
    let not_owned = |tables: &[(&Outbox, &OutboxFacts)]| {
        let others = tables.iter().find(|(_, have)| have.table.as_ref().is_some_and(|table| !table.owned));
        others.map(|(outbox, _)| {
            format!("only the owner of {} may publish it", quote::qualified(&outbox.name.schema, &outbox.name.table))
        })
    };
    let (title, sql, makes, lacking) = match (&facts.publication, connector.publication.autocreate) {
        (None, autocreate) => {
            let of = extent(autocreate, &names(&tables));
            let lacking = plan::lacking_on_database(&facts.server).or_else(|| not_owned(&tables).filter(|_| filtered));
            let made = Made::global(Kind::Publication, &config.publication);
            (format!("create {made}{of}"), create_publication(connector, &quoted, &of), vec![made], lacking)
        }
        (Some(found), Autocreate::Filtered | Autocreate::Disabled) if !found.all_tables => {
            let lacks = |(outbox, have): &(&Outbox, &OutboxFacts)| {
                let partitioned = have.table.as_ref().is_some_and(|table| table.kind == table::Kind::Partitioned);
                let by_partitions = partitioned && !found.via_partition_root && !found.tables.is_empty();
                let root = have.table.as_ref().and_then(|table| table.partition_of.as_deref());
                let by_root = found.via_partition_root && root.is_some_and(|root| has_quoted(found, root));
                !(has(found, &outbox.name) || by_partitions || by_root)
            };
            let lacking: Vec<_> = tables.iter().copied().filter(lacks).collect();
            if lacking.is_empty() {
                return Ok(());
            }
            let right = if found.owned {
                not_owned(&lacking)
            } else {
                Some(format!("only the owner of publication {quoted} may alter it"))
            };
            let names = names(&lacking);
            let sql = format!("alter publication {quoted} add table {names};");
            (format!("add table {names} to publication {quoted}"), sql, Vec::new(), right)
        }
        (Some(_), _) => return Ok(()),
    };
    steps.push(Step { title, sql, makes, action: Action::Statements, lacking, optional: false });
    Ok(())
}

/// What a publication is made for, as SQL says it behind its name.
fn extent(autocreate: Autocreate, tables: &str) -> String {
    match autocreate {
        Autocreate::AllTables => " for all tables".to_owned(),
        Autocreate::Filtered | Autocreate::Disabled if !tables.is_empty() => format!(" for table {tables}"),
        Autocreate::Filtered | Autocreate::Disabled | Autocreate::NoTables => String::new(),
    }
}

fn create_publication(connector: &Connector, quoted: &str, extent: &str) -> String {
    let options = if connector.publication.via_root { " with (publish_via_partition_root = true)" } else { "" };
    format!("create publication {quoted}{extent}{options};")
}

/// The statement that makes the publication of a configuration whose tables are named.
pub(super) fn script(config: &Config, connector: &Connector) -> String {
    let names: Vec<_> =
        config.outboxes.iter().map(|outbox| quote::qualified(&outbox.name.schema, &outbox.name.table)).collect();
    let extent = extent(connector.publication.autocreate, &names.join(", "));
    create_publication(connector, &quote::ident(&config.publication), &extent) + "\n"
}

fn has(publication: &Publication, name: &TableName) -> bool {
    publication.published(&name.schema, &name.table).is_some() || publication.names(&name.schema, &name.table)
}

/// As SQL writes the name.
fn has_quoted(publication: &Publication, name: &str) -> bool {
    publication.tables.iter().any(|entry| quote::qualified(&entry.schema, &entry.table) == name)
}

/// The lists that say which tables the connector takes.
fn patterns(connector: &Connector) -> String {
    let lists = [("schemas", &connector.tables.schemas), ("tables", &connector.tables.tables)];
    let shown: Vec<_> = lists
        .into_iter()
        .filter_map(|(of, list)| Some(format!("{of} {}", list.as_ref()?.patterns().collect::<Vec<_>>().join(", "))))
        .collect();
    if shown.is_empty() { "every one".to_owned() } else { shown.join("; ") }
}

/// Why a connector's database is not ready for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Tables(#[from] TablesError),
    #[error(
        "this role may not {title}: {lacking}; someone who may runs: {sql} (walpost needs no such right where the publication \
         exists)"
    )]
    Lacking { title: String, lacking: String, sql: String },
    /// What no catalog shows beforehand, such as publishing all tables on a managed server.
    #[error(
        "this role may not {title}; someone who may runs: {sql}, or publication.autocreate.mode = filtered publishes the \
         connector's tables only"
    )]
    Denied { title: String, sql: String, source: tokio_postgres::Error },
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl Error {
    /// Whether another try can help.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Postgres(error) => error.kind(),
            // Another process makes the same.
            Error::Apply(ApplyError::Busy | ApplyError::Slot(SlotError::InUse(_) | SlotError::Exists(_))) => {
                ErrorKind::Transient
            }
            Error::Apply(ApplyError::Sql(source) | ApplyError::Step { source, .. })
                if source.as_db_error().is_none() =>
            {
                ErrorKind::Transient
            }
            Error::Fault(_) | Error::Tables(_) | Error::Lacking { .. } | Error::Denied { .. } | Error::Apply(_) => {
                ErrorKind::Permanent
            }
        }
    }
}

impl From<tables::Error> for Error {
    fn from(error: tables::Error) -> Error {
        match error {
            tables::Error::Sql(error) => Error::Postgres(error.into()),
            tables::Error::Tables(error) => Error::Tables(error),
        }
    }
}

/// Makes what is missing, and gives the configuration with the connector's tables. `stop` ends the wait for the slot.
pub async fn prepare(config: &Config, stop: &mut watch::Receiver<bool>) -> Result<Config, Error> {
    let Some(debezium) = &config.debezium else { return Ok(config.clone()) };
    let connector = debezium.connector();
    let client = sql::connect(&config.database).await?;
    let mut wanted = config.clone();
    if config.lacks_tables() && connector.publication.autocreate == Autocreate::Filtered {
        let taken = tables::taken(&client, debezium).await?;
        wanted = wanted.with_tables(taken.into_iter().map(|found| found.name).collect())?;
    }
    let facts = Facts::read(&client, &wanted).await.map_err(postgres::Error::from)?;
    let plan = plan(&wanted, connector, &facts)?;
    if let Some(Step { title, lacking: Some(lacking), sql, .. }) = plan.blocked().next() {
        let (title, lacking, sql) = (title.clone(), lacking.clone(), statement(sql));
        return Err(Error::Lacking { title, lacking, sql });
    }
    if plan.ours().next().is_some() {
        let observer = sql::connect(&config.database).await?;
        let news = |news: News<'_>| match news {
            News::Done(title) => tracing::info!("made in the database: {title}"),
            News::Waiting([]) => tracing::info!("the slot waits for the server to reach a consistent point"),
            News::Waiting(blockers) => {
                blockers.iter().for_each(|blocker| tracing::warn!("the slot waits for {blocker}"))
            }
        };
        let cancelled = async {
            // Without a sender nobody asks.
            if stop.wait_for(|stop| *stop).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        apply::apply(&client, &observer, &wanted, &plan, news, cancelled)
            .await
            .map_err(|error| denied(error, &plan))?;
    }
    for Step { title, lacking, .. } in plan.skipped() {
        let lacking = lacking.as_deref().unwrap_or_default();
        tracing::warn!("this role may not {title} ({lacking}); the stream does without it");
    }
    Ok(tables::look_up(&client, config.clone()).await?)
}

/// A failure for want of a right says what is to be run.
fn denied(error: ApplyError, plan: &Plan) -> Error {
    match error {
        ApplyError::Step { title, source } if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let sql = plan.steps.iter().find(|step| step.title == title).map_or("", |step| &step.sql);
            Error::Denied { sql: statement(sql), title, source }
        }
        error => error.into(),
    }
}

/// A step's SQL on one line.
fn statement(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches(';').to_owned()
}
