//! The JSON of Kafka Connect's answers.

use std::collections::BTreeMap;

use serde::Serialize;

/// `GET /`.
#[derive(Debug, Serialize)]
pub(super) struct Server<'a> {
    pub(super) version: &'a str,
    pub(super) commit: &'a str,
    /// None until a session has met Kafka.
    pub(super) kafka_cluster_id: Option<&'a str>,
}

/// A connector, as it is made.
#[derive(Debug, Serialize)]
pub(super) struct Info<'a> {
    pub(super) name: &'a str,
    pub(super) config: &'a BTreeMap<String, String>,
    pub(super) tasks: Vec<TaskId<'a>>,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct TaskId<'a> {
    pub(super) connector: &'a str,
    pub(super) task: u32,
}

/// A connector, as it does.
#[derive(Debug, Serialize)]
pub(super) struct ConnectorStatus<'a> {
    pub(super) name: &'a str,
    pub(super) connector: Condition<'a>,
    pub(super) tasks: Vec<TaskStatus<'a>>,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct TaskStatus<'a> {
    pub(super) id: u32,
    #[serde(flatten)]
    pub(super) condition: Condition<'a>,
}

#[derive(Debug, Serialize)]
pub(super) struct Condition<'a> {
    pub(super) state: State,
    pub(super) worker_id: &'a str,
    pub(super) version: &'a str,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<&'a str>,
}

/// What a connector or a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum State {
    /// Of a task: another process does its work, or none does yet.
    Unassigned,
    Running,
    Paused,
    Stopped,
    Restarting,
}

/// One of `GET /connectors/{name}/tasks`.
#[derive(Debug, Serialize)]
pub(super) struct Task<'a> {
    pub(super) id: TaskId<'a>,
    pub(super) config: BTreeMap<&'a str, &'a str>,
}

/// `GET /connectors/{name}/topics`, by connector.
#[derive(Debug, Serialize)]
pub(super) struct Topics<'a> {
    pub(super) topics: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct Offsets<'a> {
    pub(super) offsets: Vec<PartitionOffset<'a>>,
}

/// In the shape of Debezium's connector for PostgreSQL.
#[derive(Debug, Serialize)]
pub(super) struct PartitionOffset<'a> {
    pub(super) partition: Partition<'a>,
    pub(super) offset: Offset,
}

#[derive(Debug, Serialize)]
pub(super) struct Partition<'a> {
    pub(super) server: &'a str,
}

/// Positions in the log are byte counts.
#[derive(Debug, Serialize)]
pub(super) struct Offset {
    pub(super) lsn_proc: u64,
    pub(super) lsn_commit: u64,
    pub(super) lsn: u64,
    /// Microseconds since 1970: when the last delivered transaction was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ts_usec: Option<i64>,
}

/// One of `GET /connector-plugins`.
#[derive(Debug, Serialize)]
pub(super) struct Plugin<'a> {
    pub(super) class: &'a str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) version: &'a str,
}
