//! What walpost makes of what was committed: it runs until everything is confirmed, or until it halts.
//!
//! The slot is older than the events, so that a story can commit first and look afterwards, all at once.

use std::time::Duration;

use super::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    records::{Isolation, Record},
    walpost::Walpost,
};

/// How long a story waits for anything, on a busy machine.
pub const WITHIN: Duration = Duration::from_secs(60);

/// An idle position moves soon.
const QUICK: &str = "status_interval = \"500ms\"\n";

/// A configuration of the shared broker whose idle position moves soon.
pub fn quick(outbox: &Outbox<'_>, more: &str) -> String {
    outbox.configuration(Kafka::shared(), &format!("{QUICK}{more}"))
}

/// Streams all that is committed, stops in order, and gives every record of the topics that exist, by topic and offset.
pub fn streamed(outbox: &Outbox<'_>, more: &str, topics: &[&str]) -> Vec<Record> {
    let walpost = Walpost::start(&quick(outbox, more));
    walpost.streams(outbox, WITHIN);
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    all(topics)
}

/// Every record of those topics of the shared broker that exist, by topic, partition and offset.
pub fn all(topics: &[&str]) -> Vec<Record> {
    let kafka = Kafka::shared();
    let mut records = Vec::new();
    for topic in topics.iter().filter(|topic| kafka.partitions(topic).is_some()) {
        records.extend_from_slice(kafka.reader(&[topic], Isolation::Uncommitted, WITHIN).until_end(WITHIN));
    }
    records.sort_by(|a, b| (&a.topic, a.partition, a.offset).cmp(&(&b.topic, b.partition, b.offset)));
    records
}

/// All that a consumer of committed records sees in a topic of the shared broker, once there are `expect` of them.
pub fn committed(topic: &str, expect: usize) -> Vec<Record> {
    let mut reader = Kafka::shared().reader(&[topic], Isolation::Committed, WITHIN);
    reader.until(WITHIN, "all", |records| records.len() >= expect);
    reader.until_end(WITHIN).to_vec()
}

/// Runs until walpost halts by itself, with exit code 1, and lets go of the slot; gives what it printed.
pub fn halted(outbox: &Outbox<'_>, more: &str) -> String {
    let walpost = Walpost::start(&quick(outbox, more));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    freed(outbox);
    walpost.log()
}

/// Waits until nobody has the slot.
pub fn freed(outbox: &Outbox<'_>) {
    let session = outbox.database.session();
    let active = format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{}'", outbox.slot());
    eventually(WITHIN, "the slot is free", || (session.get::<String>(&active) == "f").then_some(()));
}

/// A transaction that a slot still holds, as the server's own decoder tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Start of the commit record.
    pub commit_lsn: u64,
    /// Milliseconds since 1970.
    pub commit_ms: i64,
}

impl Transaction {
    /// The position of an event of it.
    pub fn position(&self, ordinal: u32) -> String {
        format!("{:016X}-{ordinal:08X}", self.commit_lsn)
    }
}

/// The transactions that the slot has still to send, empty ones left out. No one may be streaming from it.
pub fn transactions(outbox: &Outbox<'_>) -> Vec<Transaction> {
    const MS_FROM_1970_TO_2000: i64 = 946_684_800_000;
    let messages = outbox.database.session().rows(&format!(
        "SELECT encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes('{}', NULL, NULL,
           'proto_version', '1', 'publication_names', 'walpost')",
        outbox.slot()
    ));
    let mut found = Vec::new();
    let mut open = None;
    for message in messages.into_iter().flatten().flatten() {
        let number = |bytes: std::ops::Range<usize>| {
            u64::from_str_radix(&message[bytes.start * 2..bytes.end * 2], 16).expect("the server prints hexadecimal")
        };
        match &message[..2] {
            // Begin: position of the commit, microseconds since 2000, transaction id.
            "42" => {
                let commit_us = number(9..17) as i64;
                let commit_ms = commit_us.div_euclid(1000) + MS_FROM_1970_TO_2000;
                open = Some(Transaction { commit_lsn: number(1..9), commit_ms });
            }
            // Insert.
            "49" => found.extend(open.take()),
            _ => {}
        }
    }
    found
}
