//! Which converters there are: the connector's own, else its worker's.

use std::collections::BTreeMap;

use super::settings::Reader;
use crate::{
    config::ConfigError,
    connect::{Converter, ConverterError, Role},
};

impl Reader<'_> {
    /// The converter of `key.converter`, `value.converter` or `header.converter`.
    pub(super) fn converter(&self, role: Role) -> Result<Converter, ConfigError> {
        let key = match role {
            Role::Key => "key.converter",
            Role::Value => "value.converter",
            Role::Header => "header.converter",
        };
        // The worker's options belong to the worker's class.
        let items = if self.given.connector.contains_key(key) { &self.given.connector } else { &self.given.worker };
        let Some(class) = items.get(key) else {
            if role == Role::Header {
                return Ok(Converter::Simple);
            }
            let problem = "this is not given, and the worker's is not known; write it, or name the worker's file";
            return Err(self.missing(key, problem));
        };
        let prefix = format!("{key}.");
        let options: BTreeMap<String, String> = items
            .iter()
            .filter_map(|(name, item)| Some((name.strip_prefix(&prefix)?.to_owned(), item.value.trim().to_owned())))
            .collect();
        Converter::new(&class.value, role, &options).map_err(|error| {
            let item = match &error {
                ConverterError::Option { key: option, .. } => items.get(&format!("{prefix}{option}")),
                ConverterError::Unknown { .. }
                | ConverterError::Ambiguous { .. }
                | ConverterError::HeaderOnly { .. } => None,
            };
            self.refuse(item.unwrap_or(class), error.to_string())
        })
    }
}
