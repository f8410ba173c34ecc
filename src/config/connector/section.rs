//! The section `[debezium]`: the connector's own keys that decide records, beside walpost's own settings for the rest.
//!
//! It is read as a connector's file is. What walpost's settings say is refused here, with the name of the setting; the
//! connector gets it from them.

use super::{
    Connector,
    catalogue::{Found, Meaning},
    given::{Given, Host, Item, Items},
    judge::{self, Remark},
    selection,
    settings::Reader,
};
use crate::{
    config::{ConfigError, Environment, Origin, Place},
    pipeline::outbox::TableName,
    postgres::conninfo::ConnInfo,
};

/// Its name in the file.
pub(in crate::config) const SECTION: &str = "debezium";

/// Says that Debezium Server is what runs the connector today.
pub(super) const SINK_TYPE: &str = "debezium.sink.type";

/// What walpost's settings say of a connector.
pub(in crate::config) struct Own<'a> {
    pub(in crate::config) database: &'a ConnInfo,
    pub(in crate::config) slot: &'a str,
    pub(in crate::config) failover: bool,
    pub(in crate::config) publication: &'a str,
    /// A word of `snapshot.mode`.
    pub(in crate::config) snapshot: &'a str,
    /// Those that are named; none: the section says which.
    pub(in crate::config) tables: Option<Vec<&'a TableName>>,
}

/// Reads the section's keys, each with its value and where it is from.
pub(in crate::config) fn read(
    keys: impl IntoIterator<Item = (String, String, Origin)>,
    own: &Own<'_>,
    environment: &Environment,
) -> Result<(Connector, Vec<Remark>), ConfigError> {
    let mut items = Items::new();
    for (name, value, origin) in keys {
        let path = format!("{SECTION}.{name}");
        items.insert(name, Item { value, reference: None, place: Place { origin, path } });
    }
    let host = if items.remove(SINK_TYPE).is_some() { Host::Server } else { Host::Connect };
    let origin = items.values().next().map_or(Origin::Default, |item| item.place.origin.clone());
    let mut given = Given::of(host, origin, "debezium.", items);
    refuse_settings(&given)?;
    if let (Some(_), Some(item)) = (&own.tables, given.get("table.include.list").or(given.get("table.exclude.list"))) {
        let problem = "`table` names the tables too; leave one of them out".to_owned();
        return Err(ConfigError::Value { place: item.place.clone(), problem });
    }
    own.lay_over(&mut given.connector);
    let remarks = judge::judge(&given, true)?;
    Ok((Reader::new(&given).connector(environment)?, remarks))
}

/// What walpost has a setting for is in one place.
fn refuse_settings(given: &Given) -> Result<(), ConfigError> {
    let classes = judge::Classes::of(given);
    for (name, item) in &given.connector {
        let meaning = match classes.scopes().find(name) {
            Found::Key(key) => key.meaning,
            Found::Open(meaning) => meaning,
            Found::Unknown { .. } => continue,
        };
        if let Meaning::Own(setting) = meaning {
            let problem = format!("walpost has a setting for this; write {setting}");
            return Err(ConfigError::Value { place: item.place.clone(), problem });
        }
    }
    Ok(())
}

impl Own<'_> {
    fn lay_over(&self, items: &mut Items) {
        let host = self.database.targets.first().map(|target| target.host.to_string());
        let mut lay = |name: &str, value: String| {
            let place = Place { origin: Origin::Default, path: name.to_owned() };
            items.entry(name.to_owned()).or_insert(Item { value, reference: None, place });
        };
        lay("connector.class", "io.debezium.connector.postgresql.PostgresConnector".to_owned());
        lay("plugin.name", "pgoutput".to_owned());
        lay("database.hostname", host.filter(|host| !host.is_empty()).unwrap_or_else(|| "localhost".to_owned()));
        lay("database.user", self.database.user.clone());
        lay("database.dbname", self.database.database.clone());
        lay("slot.name", self.slot.to_owned());
        lay("slot.failover", self.failover.to_string());
        lay("publication.name", self.publication.to_owned());
        // Who writes no connector's file has a publication that set-up made.
        lay("publication.autocreate.mode", "disabled".to_owned());
        lay("snapshot.mode", self.snapshot.to_owned());
        if let Some(tables) = &self.tables {
            let patterns = tables.iter().map(|name| selection::pattern_of(name));
            lay("table.include.list", patterns.collect::<Vec<_>>().join(","));
        }
    }
}
