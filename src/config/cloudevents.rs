//! `[cloudevents]`: what it means, and where it means nothing.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use toml::Value;

use crate::{
    pipeline::outbox::{self, TableName},
    postgres::conninfo::ConnInfo,
};

use super::{
    ConfigError, Settings,
    keys::Key,
    typed::{CloudEvents, Format, Outbox},
};

const SECTION: &str = "cloudevents";
/// All but RFC 3986's unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Outbox {
    /// What its events become, as far as it is said here: a connector's own outbox gets its format from the connector, and
    /// messages that stand beside one have walpost's.
    pub(super) fn format(&self, name: &TableName, database: &ConnInfo) -> outbox::Format {
        match self.format {
            Format::CloudEvents => outbox::Format::CloudEvents(self.cloudevents.resolve(&database.database, name)),
            Format::Native | Format::Debezium => outbox::Format::Native,
        }
    }
}

impl CloudEvents {
    fn resolve(&self, database: &str, table: &TableName) -> outbox::CloudEvents {
        let CloudEvents { mode, source, event_type, content_type } = self.clone();
        let source = source.unwrap_or_else(|| {
            let names = [database, &table.schema, &table.table];
            names.map(|name| format!("/{}", utf8_percent_encode(name, RESERVED))).concat()
        });
        outbox::CloudEvents { mode, source, event_type, content_type }
    }
}

/// Refuses keys of the section where nothing has the format.
pub(super) fn judge(settings: &Settings, outboxes: &[Outbox]) -> Result<(), ConfigError> {
    let refuse = |path: &str| {
        Err(settings
            .refuse(path, "this means something with format = \"cloudevents\" only; leave it out, or set the format"))
    };
    let is_ours = |outbox: &Outbox| outbox.format == Format::CloudEvents;
    for (index, (own, outbox)) in settings.outboxes().iter().zip(outboxes).enumerate() {
        if own.get(SECTION).is_some() && !is_ours(outbox) {
            return refuse(&format!("outbox[{index}].{SECTION}"));
        }
    }
    // What is shown has defaults too, and loads again.
    let is_default = |path: &str, value: &Value| Key::find(path).is_some_and(|key| key.default == value.as_str());
    let mut given = settings.members(SECTION).filter(|(_, path, entry)| !is_default(path, &entry.value));
    match given.next() {
        Some((_, path, _)) if !outboxes.iter().any(is_ours) => refuse(path),
        _ => Ok(()),
    }
}
