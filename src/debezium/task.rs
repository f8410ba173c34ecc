//! What runs a connector: rows, messages and ticks become records, with no IO and no clock.

use crate::config::connector::Connector;

/// A connector at work. Every run has an id of its own, which records carry.
#[derive(Clone, Debug)]
pub struct Task {
    connector: Connector,
    run_id: String,
}

impl Task {
    pub fn new(connector: &Connector, run_id: String) -> Task {
        Task { connector: connector.clone(), run_id }
    }

    /// What it runs.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// A UUID of version 7.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }
}
