//! Events that no sink can take, and why.

use super::{TableName, cloudevents_text::Flaw};
use crate::{
    debezium::Refusal,
    pipeline::{frame::PgTime, lsn::Position, message::Malformed},
};

/// An event that no sink can take as it is, and why. It is never skipped: what happens next is the session's decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {id} at position {position} of {table} cannot be routed: {reason}")]
pub struct Poison {
    /// As text; what is no UTF-8 in it shows as replacement characters.
    pub id: String,
    pub position: Position,
    pub table: TableName,
    pub reason: Reason,
    /// The transaction that inserted the row.
    pub xid: u32,
    pub commit_time: PgTime,
    /// What the row has, as bytes of its text.
    pub aggregate_type: Option<Vec<u8>>,
    pub aggregate_id: Option<Vec<u8>>,
    pub event_type: Option<Vec<u8>>,
    pub payload: Option<Vec<u8>>,
    pub headers: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("its id is NULL; the id column must be NOT NULL")]
    NoId,
    #[error("the topic template names column {0:?}, which is NULL in this row")]
    NullInTopic(String),
    #[error(
        "its topic is {0:?}; Kafka allows 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither \".\" nor \"..\" nor its own \
         __consumer_offsets, __transaction_state and __share_group_state"
    )]
    IllegalTopic(String),
    #[error("the URL in its destination cannot be used: {0}")]
    IllegalUrl(&'static str),
    #[error("its destination names host {0:?}, which webhook.allow_hosts does not have")]
    ForbiddenHost(String),
    #[error("column {0:?}, a part of its URL, is one or two dots, which would lead elsewhere")]
    DotsInUrl(String),
    #[error(
        "its exchange and routing key are {0:?}; an exchange has up to 255 bytes and no slash, a routing key 1 to 255 bytes"
    )]
    IllegalRoute(String),
    #[error("its headers column holds no JSON object ({0})")]
    Headers(String),
    #[error("its payload is no bytea text")]
    Bytea,
    #[error("cloudevents.type names column {0:?}, which is NULL in this row")]
    NullInType(String),
    #[error("column {column:?}, its CloudEvents attribute {attribute}, {flaw}")]
    Attribute { attribute: &'static str, column: String, flaw: Flaw },
    #[error("a member of its headers has a name that begins with ce_, which consumers would take for an attribute")]
    AttributeHeader,
    #[error(
        "the content type in its headers is none that a payload can have: write a media type as a string, and none of CloudEvents' own"
    )]
    ContentType,
    #[error("its payload is no JSON, and its content type is {0:?} (cloudevents.content_type)")]
    NoJson(String),
    #[error("its payload is no UTF-8, which an event in structured mode is")]
    NoText,
    #[error("column {} of its row is no UTF-8", .0 + 1)]
    Encoding(usize),
    #[error(
        "the message is not transactional: it would come whatever becomes of the transaction that sent it; send true as the first argument of pg_logical_emit_message"
    )]
    Untransactional,
    #[error(transparent)]
    Malformed(Malformed),
    #[error(transparent)]
    Connector(Refusal),
}
