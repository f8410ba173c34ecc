//! What each given key is: understood, without meaning here, unknown, or refused.

use std::collections::BTreeMap;

use super::{
    catalogue::{Found, Meaning, Scopes},
    given::{Given, Item},
    kind::Kind,
    list,
};
use crate::config::ConfigError;

/// A key that changes nothing here, or that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Known, and nothing here depends on it.
    Void {
        /// The key as it stands in its file.
        key: String,
        why: &'static str,
    },
    Unknown {
        key: String,
        nearest: Option<String>,
    },
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Remark::Void { key, why } => write!(f, "{key} means nothing here: {why}"),
            Remark::Unknown { key, nearest: Some(nearest) } => {
                write!(f, "{key} is unknown and means nothing; did you mean {nearest}?")
            }
            Remark::Unknown { key, nearest: None } => write!(f, "{key} is unknown and means nothing"),
        }
    }
}

/// The classes of transforms and predicates, by their names.
pub(super) struct Classes {
    transforms: BTreeMap<String, String>,
    predicates: BTreeMap<String, String>,
}

impl Classes {
    pub(super) fn of(given: &Given) -> Classes {
        let classes = |list: &str| -> BTreeMap<String, String> {
            let names = given.connector.get(list).map_or("", |item| &item.value);
            let class = |name: &str| given.connector.get(&format!("{list}.{name}.type"));
            list::names(names)
                .map(|name| (name.to_owned(), class(name).map(|item| item.value.trim().to_owned()).unwrap_or_default()))
                .collect()
        };
        Classes { transforms: classes("transforms"), predicates: classes("predicates") }
    }

    pub(super) fn scopes(&self) -> Scopes<'_> {
        Scopes { transforms: borrowed(&self.transforms), predicates: borrowed(&self.predicates) }
    }
}

fn borrowed(classes: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    classes.iter().map(|(name, class)| (name.as_str(), class.as_str())).collect()
}

/// Checks every value, then tells of what is without meaning. `strict` makes unknown keys errors.
pub(super) fn judge(given: &Given, strict: bool) -> Result<Vec<Remark>, ConfigError> {
    let classes = Classes::of(given);
    let scopes = classes.scopes();
    let mut remarks = Vec::new();
    let mut unknown = None;
    for (name, item) in given.connector.iter().chain(&given.worker) {
        match scopes.find(name) {
            Found::Key(key) => {
                key.kind.check(&item.value).map_err(|problem| refuse(item, key.kind, problem))?;
                weigh(item, key.kind, key.meaning, &mut remarks)?;
            }
            Found::Open(meaning) => weigh(item, Kind::Text, meaning, &mut remarks)?,
            Found::Unknown { nearest } => {
                let key = item.place.path.clone();
                let origin = item.place.origin.clone();
                unknown.get_or_insert(ConfigError::UnknownConnectorKey {
                    origin,
                    name: key.clone(),
                    nearest: nearest.clone(),
                });
                remarks.push(Remark::Unknown { key, nearest });
            }
        }
    }
    match unknown {
        Some(error) if strict => Err(error),
        Some(_) | None => Ok(remarks),
    }
}

fn weigh(item: &Item, kind: Kind, meaning: Meaning, remarks: &mut Vec<Remark>) -> Result<(), ConfigError> {
    match meaning {
        Meaning::Record | Meaning::Own(_) => {}
        Meaning::Void(why) => remarks.push(Remark::Void { key: item.place.path.clone(), why }),
        Meaning::Only(same, why) => {
            let value = item.value.trim();
            if !same.iter().any(|same| same.eq_ignore_ascii_case(value)) {
                let allowed = match same.iter().filter(|same| !same.is_empty()).collect::<Vec<_>>()[..] {
                    [] => "leave it out".to_owned(),
                    [first, ..] => format!("write {first}"),
                };
                return Err(refuse(item, kind, format!("{:?} is not available: {why}; {allowed}", item.value)));
            }
        }
    }
    Ok(())
}

/// An error about a value, which stays out of it where it may be a secret.
fn refuse(item: &Item, kind: Kind, problem: String) -> ConfigError {
    let hidden = item.reference.is_some() || kind == Kind::Secret;
    let problem = if hidden { problem.replace(&format!("{:?}", item.value), "the value") } else { problem };
    ConfigError::Value { place: item.place.clone(), problem }
}
