//! What stories know of whoever receives the events.

use std::collections::HashMap;

pub(super) use crate::support::verify::Report;
use crate::support::{
    outbox::{Event, Outbox},
    records::Record,
    verify::verify,
    walpost::Walpost,
};

/// One arrival, as its receiver saw it.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// What the event's topic would be.
    pub(super) destination: String,
    pub(super) id: String,
    pub(super) position: String,
    pub(super) value: Vec<u8>,
}

/// Where the events of an outbox go.
pub(super) trait Receiver {
    /// Events that take it a moment.
    const BATCH: u32;
    /// Size of an event that nothing on the way to it takes whole.
    const UNTAKEN: usize = 0;
    /// Aggregate type of events that it refuses, and why.
    const REFUSED: &str = "refused";
    const REASON: &str = "rejected";

    fn start(outbox: &Outbox<'_>) -> Self;
    /// The TOML of a configuration.
    fn configuration(&self, outbox: &Outbox<'_>) -> String;
    fn run(&self, configuration: &str) -> Walpost {
        Walpost::start(configuration)
    }
    fn stop(&self);
    fn start_again(&self);
    /// It is there and says nothing.
    fn pause(&self);
    fn resume(&self);
    /// It takes what it refused.
    fn mend(&self, outbox: &Outbox<'_>);
    /// All that has arrived, in that order for each destination.
    fn arrivals(&self) -> Vec<Arrival>;

    /// What has arrived, compared with what was committed.
    fn report(&self, committed: &[Event]) -> Report {
        let keys: HashMap<&str, &str> = committed.iter().map(|event| (&*event.id, &*event.key)).collect();
        let record = |Arrival { destination, id, position, value }: Arrival| Record {
            topic: destination,
            partition: 0,
            offset: 0,
            timestamp: None,
            key: keys.get(&*id).map(|key| key.as_bytes().to_vec()),
            value: Some(value),
            headers: vec![
                ("id".to_owned(), Some(id.into_bytes())),
                ("position".to_owned(), Some(position.into_bytes())),
            ],
        };
        verify(committed, &self.arrivals().into_iter().map(record).collect::<Vec<_>>())
    }
}
