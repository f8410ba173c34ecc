//! The chain of transforms, each with the predicate that it waits for.

use super::{
    Router,
    catalogue::{is_foreign, without_package},
    given::Item,
    list,
    settings::{Options, Reader},
};
use crate::{
    config::ConfigError,
    connect::{Converter, Role, regex::Pattern},
};

/// One transform of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transform {
    /// Its name in the configuration.
    pub name: String,
    /// What must hold of a record; none: nothing.
    pub condition: Option<Condition>,
    pub does: Does,
}

/// What a transform does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    EventRouter(Box<Router>),
    /// `DecodeLogicalDecodingMessageContent`: the JSON of a logical message becomes a row.
    DecodeMessage {
        /// `fields.null.include`: members that are null become fields.
        keep_nulls: bool,
    },
    /// Only the topic and key that the event router replaces anyway.
    Overwritten {
        class: String,
    },
    /// A class that is not available. Its condition keeps it from the records of an outbox, or these cannot be made:
    /// whether it does shows where their topics are known.
    Foreign {
        class: String,
    },
}

/// `predicate` and `negate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub predicate: Predicate,
    pub negate: bool,
}

/// What a predicate asks of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// The pattern fits all of its topic.
    TopicNameMatches(Box<Pattern>),
    HasHeaderKey(String),
    RecordIsTombstone,
}

impl Reader<'_> {
    pub(super) fn transforms(&self) -> Result<Vec<Transform>, ConfigError> {
        let Some(names) = self.given.connector.get("transforms") else { return Ok(Vec::new()) };
        let mut transforms: Vec<Transform> = Vec::new();
        for name in list::names(&names.value) {
            if transforms.iter().any(|transform| transform.name == name) {
                return Err(self.refuse(names, format!("{name:?} is named twice")));
            }
            let prefix = format!("transforms.{name}.");
            let class = self.class(names, name, &prefix)?;
            let options = self.options(&prefix, &class.value);
            let condition = self.condition(&options)?;
            let does = match without_package(class.value.trim()) {
                "EventRouter" => Does::EventRouter(Box::new(Router::read(&options)?)),
                "DecodeLogicalDecodingMessageContent" => {
                    Does::DecodeMessage { keep_nulls: options.switch("fields.null.include") }
                }
                _ => Does::Foreign { class: class.value.trim().to_owned() },
            };
            transforms.push(Transform { name: name.to_owned(), condition, does });
        }
        self.judge_foreign(&mut transforms)?;
        Ok(transforms)
    }

    fn class(&self, names: &Item, name: &str, prefix: &str) -> Result<&Item, ConfigError> {
        let class = self.given.connector.get(&format!("{prefix}type"));
        class.ok_or_else(|| self.refuse(names, format!("{name:?} has no class; write {prefix}type")))
    }

    fn condition(&self, options: &Options<'_>) -> Result<Option<Condition>, ConfigError> {
        let Some(named) = options.item("predicate") else { return Ok(None) };
        let name = named.value.trim();
        let declared = self.given.connector.get("predicates").map_or("", |item| &item.value);
        if !list::names(declared).any(|known| known == name) {
            return Err(self.refuse(named, format!("no predicate is named {name:?}; `predicates` lists {declared:?}")));
        }
        let prefix = format!("predicates.{name}.");
        let class = self.class(named, name, &prefix)?;
        let asked = self.options(&prefix, &class.value);
        let predicate = match without_package(class.value.trim()) {
            "TopicNameMatches" => Predicate::TopicNameMatches(Box::new(asked.pattern("pattern")?)),
            "HasHeaderKey" => Predicate::HasHeaderKey(asked.required("name")?),
            "RecordIsTombstone" => Predicate::RecordIsTombstone,
            _ => {
                let problem = format!(
                    "the predicate {:?} is not available; available are TopicNameMatches, HasHeaderKey, RecordIsTombstone",
                    class.value
                );
                return Err(self.refuse(class, problem));
            }
        };
        Ok(Some(Condition { predicate, negate: options.switch("negate") }))
    }

    /// Refuses a transform that would change records and is not available, save where it changes nothing that lasts.
    fn judge_foreign(&self, transforms: &mut [Transform]) -> Result<(), ConfigError> {
        for index in 0..transforms.len() {
            let Does::Foreign { class } = &transforms[index].does else { continue };
            debug_assert!(is_foreign(class));
            let behind = &transforms[index + 1..];
            if self.is_overwritten(class, behind)? {
                transforms[index].does = Does::Overwritten { class: class.clone() };
            } else if transforms[index].condition.is_none() {
                let item = &self.given.connector[&format!("transforms.{}.type", transforms[index].name)];
                let problem = format!(
                    "the transform {class:?} is not available, and records would differ without it; \
                     available are EventRouter and DecodeLogicalDecodingMessageContent"
                );
                return Err(self.refuse(item, problem));
            }
        }
        Ok(())
    }

    /// Whether a transform only names a topic (and makes a key) that an event router behind it replaces in every record.
    fn is_overwritten(&self, class: &str, behind: &[Transform]) -> Result<bool, ConfigError> {
        let renames = match without_package(class) {
            "RegexRouter" | "TimestampRouter" => true,
            // It renames schemas too, which show in JSON.
            "ByLogicalTableRouter" => {
                let shows = |converter: Converter| matches!(converter, Converter::Json(json) if json.schemas);
                !shows(self.converter(Role::Key)?) && !shows(self.converter(Role::Value)?)
            }
            _ => false,
        };
        let routed = behind
            .iter()
            .any(|transform| matches!(transform.does, Does::EventRouter(_)) && transform.condition.is_none());
        let asked = behind.iter().any(|transform| {
            matches!(&transform.condition, Some(Condition { predicate: Predicate::TopicNameMatches(_), .. }))
        });
        // Records of these go past the event router.
        let others = self.number("heartbeat.interval.ms") > 0 || self.switch("provide.transaction.metadata");
        Ok(renames && routed && !asked && !others)
    }
}
