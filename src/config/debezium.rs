//! `format = "debezium"`: from the connector's keys to outboxes whose rows a connector's task takes.
//!
//! The tables are those that are named, or that the database has of those that the connector's patterns take. Which they are
//! decides the last of what is refused: a transform that is not available and would get records of an outbox.

use std::sync::Arc;

use super::{
    Config, ConfigError, Environment, Origin, Place, Settings, Snapshot,
    connector::{
        Connector, Remark, SnapshotMode,
        foreign::{self, Foreign},
        section,
    },
    preset::{ColumnNames, Preset},
    typed::{self, Typed},
};
use crate::{
    debezium::Task,
    pipeline::{
        outbox::{Format, Optional, Outbox, TableName},
        template::Template,
    },
    postgres::conninfo::ConnInfo,
};

/// A connector that a configuration runs.
#[derive(Clone, Debug)]
pub struct Debezium {
    pub task: Arc<Task>,
    /// The outbox of any of its tables, but for the name.
    table: Outbox,
    /// [`Config::outboxes`] has its tables; else the database is to be asked for them.
    pub tables_known: bool,
    /// Keys that mean nothing here, and unknown ones.
    pub remarks: Vec<Remark>,
}

/// Tables that a connector cannot have as outboxes.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    #[error(transparent)]
    Foreign(#[from] Foreign),
    #[error("{0}; its patterns take too many steps for the name of a table")]
    Pattern(String),
}

impl Debezium {
    pub fn connector(&self) -> &Connector {
        self.task.connector()
    }

    /// Where records of any of its tables go.
    pub fn topic(&self) -> &Template {
        &self.table.topic
    }

    /// Whether rows of a table become records.
    pub fn takes(&self, name: &TableName) -> Result<bool, TablesError> {
        let taken = self.connector().tables.take(&name.schema, &name.table);
        taken.map_err(|_| TablesError::Pattern(name.to_string()))
    }

    /// The outbox of a table that the connector takes.
    pub fn outbox(&self, name: TableName) -> Outbox {
        Outbox { name, ..self.table.clone() }
    }
}

impl Config {
    /// With these as the connector's tables, found in the database.
    pub fn with_tables(mut self, tables: Vec<TableName>) -> Result<Config, TablesError> {
        if let Some(debezium) = &mut self.debezium {
            foreign::judge(debezium.task.connector(), &tables)?;
            debezium.tables_known = true;
            let outboxes = tables.into_iter().map(|name| debezium.outbox(name));
            self.outboxes = outboxes.collect();
        }
        Ok(self)
    }

    /// The connector's tables are to be looked up again, even those that were named: its patterns may take more. Where walpost's
    /// own outboxes stand beside them, the names are all.
    pub fn forget_tables(&mut self) {
        if self.outboxes.iter().any(|outbox| !matches!(outbox.format, Format::Debezium(_))) {
            return;
        }
        self.debezium.iter_mut().for_each(|debezium| debezium.tables_known = false);
    }

    /// With this table among the connector's, though the database may have it no more: the log still has its rows.
    pub fn add_table(&mut self, name: &TableName) {
        let Some(debezium) = &self.debezium else { return };
        if self.outboxes.iter().all(|outbox| outbox.name != *name) {
            self.outboxes.push(debezium.outbox(name.clone()));
        }
    }

    /// Whether the database is to be asked for the tables first.
    pub fn lacks_tables(&self) -> bool {
        self.debezium.as_ref().is_some_and(|debezium| !debezium.tables_known)
    }
}

/// The outboxes, and the connector where one has its format.
pub(super) fn outboxes(
    settings: &Settings,
    typed: &Typed,
    own: Vec<(typed::Format, Outbox)>,
    database: &ConnInfo,
    slot: &str,
    environment: &Environment,
) -> Result<(Vec<Outbox>, Option<Debezium>), ConfigError> {
    let keys: Vec<_> = settings
        .members(section::SECTION)
        .filter_map(|(name, _, entry)| Some((name.to_owned(), typed.debezium.get(name)?.clone(), entry.origin.clone())))
        .collect();
    let Some((_, first)) = own.iter().find(|(format, _)| *format == typed::Format::Debezium) else {
        if let Some((name, _, origin)) = keys.into_iter().next() {
            let problem = "keys of a connector mean something with format = \"debezium\" only".to_owned();
            let place = Place { origin, path: format!("{}.{name}", section::SECTION) };
            return Err(ConfigError::Value { place, problem });
        }
        return Ok((own.into_iter().map(|(_, outbox)| outbox).collect(), None));
    };
    let is_named = !settings.outboxes().is_empty() || settings.place("table").origin != Origin::Default;
    let tables =
        own.iter().filter(|(format, _)| *format == typed::Format::Debezium).map(|(_, outbox)| &outbox.name).collect();
    let own_settings = section::Own {
        database,
        slot,
        failover: typed.failover,
        publication: &typed.publication,
        snapshot: match typed.snapshot {
            Snapshot::Initial => "initial",
            Snapshot::Never => "no_data",
        },
        tables: is_named.then_some(tables),
    };
    let (connector, more) = section::read(keys, &own_settings, environment)?;
    let snapshot = settings.place("snapshot");
    if connector.snapshot == SnapshotMode::InitialOnly
        && snapshot.origin != Origin::Default
        && typed.snapshot == Snapshot::Never
    {
        let problem = "the connector's snapshot.mode is initial_only; leave one of them out".to_owned();
        return Err(ConfigError::Value { place: snapshot, problem });
    }
    let task = Arc::new(Task::new(&connector, uuid::Uuid::now_v7().to_string()));
    let table = outbox(&connector, &task, first);
    let mut remarks = settings.remarks.clone();
    remarks.extend(more);
    let named = connector.tables.named().filter(|tables| !tables.is_empty());
    let debezium = Debezium { task, table, tables_known: is_named || named.is_some(), remarks };
    let outboxes: Vec<_> = match (is_named, named) {
        (true, _) => own
            .into_iter()
            .map(|(format, own)| match format {
                typed::Format::Native | typed::Format::CloudEvents => own,
                typed::Format::Debezium => outbox(&connector, &debezium.task, &own),
            })
            .collect(),
        (false, Some(named)) => {
            named.into_iter().map(|(schema, table)| debezium.outbox(TableName { schema, table })).collect()
        }
        (false, None) => Vec::new(),
    };
    let tables: Vec<_> = outboxes.iter().map(|outbox| outbox.name.clone()).collect();
    foreign::judge(&connector, &tables).map_err(|foreign| settings.refuse(&foreign.path(), foreign.to_string()))?;
    Ok((outboxes, Some(debezium)))
}

/// An outbox as configured, with what the connector's event router says of it. Columns that `[columns]` names stay.
fn outbox(connector: &Connector, task: &Arc<Task>, own: &Outbox) -> Outbox {
    let mut outbox = Outbox { format: Format::Debezium(Arc::clone(task)), ..own.clone() };
    match connector.router() {
        Some((_, router)) => {
            outbox.columns.id.clone_from(&router.id);
            outbox.columns.aggregate_id.clone_from(&router.key);
            outbox.columns.payload.clone_from(&router.payload);
            outbox.columns.aggregate_type = Optional { name: router.route_by.clone(), named: false };
            if let Some(timestamp) = &router.timestamp {
                outbox.columns.occurred_at = Optional { name: timestamp.clone(), named: false };
            }
        }
        // No column of a table plays a part.
        None => outbox.columns = ColumnNames::default().over(Preset::Debezium),
    }
    outbox.topic = topic(connector);
    outbox
}

/// Where records go, as far as a template says it: what a regular expression makes of a value may be anything.
fn topic(connector: &Connector) -> Template {
    let any = "${aggregate_type}";
    let text = match connector.router() {
        Some((_, router)) if router.topic_pattern.as_str() == "(?<routedByValue>.*)" => {
            let text =
                router.topic_replacement_text.replace("${routedByValue}", "\0").replace("$1", "\0").replace("$0", "\0");
            if text.contains(['$', '\\', '{']) { any.to_owned() } else { text.replace('\0', any) }
        }
        Some(_) => any.to_owned(),
        None => format!("{}{}{any}", connector.topic_prefix, connector.topic_delimiter),
    };
    text.parse().unwrap_or_else(|_| any.parse().expect("a template of one column"))
}

#[cfg(test)]
mod tests;
