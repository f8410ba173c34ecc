//! From an outbox to what its consumers got: the last step of most stories.

use std::time::Duration;

use super::{
    kafka::Kafka,
    outbox::{Event, Outbox},
    records::Isolation,
    verify::{Report, all_arrived, verify},
};

impl Outbox<'_> {
    /// Waits until the topics of these aggregate types hold every committed event, and compares all that they hold.
    pub fn delivered(&self, kafka: &Kafka, aggregate_types: &[&str], within: Duration) -> Report {
        self.compared(&self.committed(), kafka, aggregate_types, within)
    }

    /// The same for a consumer that reads committed records only. Further events on many keys, so on every partition,
    /// close the list: what comes before them was read.
    pub fn committed_delivered(&self, kafka: &Kafka, aggregate_type: &str, within: Duration) -> Report {
        let mut writer = self.writer();
        writer.begin();
        let partitions = kafka.partitions(&self.topic(aggregate_type)).expect("the topic is there");
        // None of 30 partitions goes without one in 300,000 such lists.
        for key in 0..16 * partitions.max(2) {
            writer.event(aggregate_type, &format!("last-{key}"));
        }
        writer.commit();
        let events = self.committed();
        let mut reader = kafka.reader(&[&self.topic(aggregate_type)], Isolation::Committed, within);
        verify(&events, reader.until(within, "every committed event", |records| all_arrived(&events, records)))
    }

    /// The same for events of which some came from the table or another server, with another position or none.
    pub fn recovered(&self, kafka: &Kafka, aggregate_type: &str, within: Duration) -> Report {
        let events = self.committed();
        let mut reader = kafka.reader(&[&self.topic(aggregate_type)], Isolation::Committed, within);
        reader.until(within, "every committed event", |records| all_arrived(&events, records));
        let mut records = reader.until_end(within).to_vec();
        for record in &mut records {
            record.headers.retain(|(name, _)| name != "position" && name != "recovered");
        }
        verify(&events, &records)
    }

    /// The same as the first for a table whose writers could not always learn whether they had committed: the table knows. Each key
    /// must have had one writer at a time.
    pub fn table_delivered(&self, kafka: &Kafka, aggregate_types: &[&str], within: Duration) -> Report {
        let rows = self
            .database
            .session()
            .rows("SELECT id, aggregate_type, aggregate_id, payload FROM walpost.outbox ORDER BY seq");
        let event = |row: Vec<Option<String>>| {
            let [id, aggregate_type, key, value] = <[_; 4]>::try_from(row).expect("four columns");
            let [id, key, value] = [id, key, value].map(|text| text.expect("stories leave none of them out"));
            Event { id, topic: self.topic(&aggregate_type.expect("it is NOT NULL")), key, value }
        };
        self.compared(&rows.into_iter().map(event).collect::<Vec<_>>(), kafka, aggregate_types, within)
    }

    fn compared(&self, events: &[Event], kafka: &Kafka, aggregate_types: &[&str], within: Duration) -> Report {
        let topics: Vec<String> = aggregate_types.iter().map(|name| self.topic(name)).collect();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let mut reader = kafka.reader(&topics, Isolation::Uncommitted, within);
        reader.until(within, "every committed event", |records| all_arrived(events, records));
        verify(events, reader.until_end(within))
    }
}
