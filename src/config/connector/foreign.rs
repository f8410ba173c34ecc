//! Transforms that are not available, judged by the topics of an outbox's records: a predicate may keep one from them.

use std::collections::BTreeSet;

use super::{Condition, Connector, Does, Placed, Predicate};
use crate::{debezium::topics, pipeline::outbox::TableName};

/// A transform that is not available and would get records of an outbox.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the transform {class:?} is not available, and {records} would differ without it; leave it out, or give it a predicate that \
     keeps it from them"
)]
pub struct Foreign {
    name: String,
    class: String,
    records: String,
}

impl Foreign {
    /// The path of its class in walpost's own file.
    pub(in crate::config) fn path(&self) -> String {
        format!("debezium.transforms.{}.type", self.name)
    }
}

/// What is known of records at some place of the chain.
struct Records {
    what: String,
    /// None: any.
    topic: Option<String>,
    headers: BTreeSet<String>,
    /// Some may have no value.
    tombstones: bool,
}

/// Refuses transforms that are not available and that records of these tables would come to. Of tables that are not known
/// yet there are none.
pub(in crate::config) fn judge(connector: &Connector, tables: &[TableName]) -> Result<(), Foreign> {
    let mut records: Vec<Records> = tables.iter().map(|name| of_table(connector, name)).collect();
    if connector.transforms.iter().any(|transform| matches!(transform.does, Does::DecodeMessage { .. })) {
        records.push(Records {
            what: "logical messages".to_owned(),
            topic: Some(topics::of_messages(&connector.topic_prefix)),
            headers: BTreeSet::new(),
            tombstones: false,
        });
    }
    for transform in &connector.transforms {
        match &transform.does {
            Does::EventRouter(router) => {
                let placed = router.placements.iter().filter(|placement| placement.place == Placed::Header);
                let headers: Vec<_> = placed.map(|placement| placement.alias.clone()).collect();
                for records in &mut records {
                    records.topic = None;
                    records.tombstones = true;
                    records.headers.insert("id".to_owned());
                    records.headers.extend(headers.iter().cloned());
                }
            }
            Does::Foreign { class } => {
                let met = records.iter().find(|records| records.meet(transform.condition.as_ref()));
                if let Some(Records { what, .. }) = met {
                    let (name, class) = (transform.name.clone(), class.clone());
                    return Err(Foreign { name, class, records: what.clone() });
                }
            }
            Does::DecodeMessage { .. } | Does::Overwritten { .. } => {}
        }
    }
    Ok(())
}

/// As the connector makes them, before the first transform.
fn of_table(connector: &Connector, name: &TableName) -> Records {
    let context = ["connectorLogicalName", "taskId", "connectorName", "runId"];
    let context = context.iter().filter(|_| connector.context_headers);
    Records {
        what: format!("records of {name}"),
        topic: Some(topics::of_table(&connector.topic_prefix, &connector.topic_delimiter, name)),
        headers: context.map(|header| format!("__debezium.context.{header}")).collect(),
        // Those behind a delete. The event router leaves them out.
        tombstones: connector.router().is_none() && connector.tombstones_on_delete,
    }
}

impl Records {
    /// Whether the condition may hold for one of them.
    fn meet(&self, condition: Option<&Condition>) -> bool {
        let Some(Condition { predicate, negate }) = condition else { return true };
        // Whether it holds for some, and for all.
        let (some, all) = match (predicate, &self.topic) {
            (Predicate::TopicNameMatches(pattern), Some(topic)) => match pattern.matches(topic) {
                Ok(matches) => (matches, matches),
                Err(_) => (true, false),
            },
            (Predicate::TopicNameMatches(_), None) => (true, false),
            (Predicate::HasHeaderKey(name), _) => (self.headers.contains(name), self.headers.contains(name)),
            (Predicate::RecordIsTombstone, _) => (self.tombstones, false),
        };
        if *negate { !all } else { some }
    }
}
