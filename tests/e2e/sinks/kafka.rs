//! A broker of Kafka.

use std::{cell::RefCell, time::Duration};

use super::receiver::{Arrival, Receiver};
use crate::support::{
    kafka::Kafka,
    outbox::Outbox,
    records::{Isolation, Reader},
    walpost::Walpost,
};

pub(super) struct Broker {
    kafka: Kafka,
    topics: [String; 2],
    reader: RefCell<Option<Reader>>,
}

impl Receiver for Broker {
    const BATCH: u32 = 20_000;
    const REASON: &str = "too_large";

    fn start(outbox: &Outbox<'_>) -> Broker {
        let kafka = Kafka::start();
        let topics = ["bulk", Broker::REFUSED].map(|name| outbox.topic(name));
        kafka.create_topic(&topics[0], 3, &[]);
        kafka.create_topic(&topics[1], 3, &[("max.message.bytes", "150")]);
        Broker { kafka, topics, reader: RefCell::default() }
    }

    fn configuration(&self, outbox: &Outbox<'_>) -> String {
        outbox.configuration(&self.kafka, "")
    }

    fn stop(&self) {
        self.kafka.stop();
    }

    fn start_again(&self) {
        self.kafka.start_again();
    }

    fn pause(&self) {
        self.kafka.pause();
    }

    fn resume(&self) {
        self.kafka.resume();
    }

    fn mend(&self, _outbox: &Outbox<'_>) {
        self.kafka.set_topic_config(&self.topics[1], &[("max.message.bytes", "1000000")]);
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let mut reader = self.reader.borrow_mut();
        let reader = reader.get_or_insert_with(|| {
            let topics = self.topics.each_ref().map(String::as_str);
            self.kafka.reader(&topics, Isolation::Uncommitted, Duration::from_secs(60))
        });
        let records = reader.until_end(Duration::from_secs(60));
        let arrival = |record: &crate::support::records::Record| Arrival {
            destination: record.topic.clone(),
            id: record.header("id").expect("an id").to_owned(),
            position: record.header("position").expect("a position").to_owned(),
            value: record.value.clone().expect("a value"),
        };
        records.iter().map(arrival).collect()
    }

    fn run(&self, configuration: &str) -> Walpost {
        Walpost::start(configuration)
    }
}
