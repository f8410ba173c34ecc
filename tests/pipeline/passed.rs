//! Rows that Kafka has already, of an outbox that marks its rows: passed over, and not confirmed before they are marked.

use walpost::pipeline::{
    Lsn, Position,
    outbox::{AfterPublish, Outbox},
    resume::{Log, Resume, Stored},
};

use crate::{
    encode::{self, oid, text},
    outbox,
    stream::{Outcome, START, Stream},
};

#[test]
fn a_row_that_is_passed_over_holds_the_position_until_it_is_marked() {
    for (after_publish, told) in [(AfterPublish::Delete, true), (AfterPublish::Keep, false)] {
        let mut stream = Stream::new(vec![Outbox { after_publish, ..outbox::walpost("walpost", "outbox") }]);
        let at = Position { commit_lsn: Lsn(START + 0x100), ordinal: 0 };
        let stored = Stored { timeline: 1, position: at, event_id: "e1".to_owned() };
        let log = Log { timeline: 1, history: Vec::new(), start: Lsn(START), end: Lsn(u64::MAX) };
        stream.pipeline.resume(Resume::new(Some(stored), &log).expect("it is this log's"));
        stream.begin();
        let columns =
            [("id", oid::UUID), ("aggregate_type", oid::TEXT), ("aggregate_id", oid::TEXT), ("payload", oid::JSONB)];
        stream.quiet(&encode::relation(1, "walpost", "outbox", &columns));
        let row = encode::insert(1, &["e1", "order", "o-1", "{}"].map(text));
        let outcome = stream.step(&row).expect("the row can be read");
        stream.commit();
        let end = stream.pipeline.ledger().newest();
        match outcome {
            Outcome::Passed(ticket, id) if told => {
                assert_eq!((&*id, stream.pipeline.confirmed()), ("e1", Lsn(START)));
                stream.pipeline.acknowledge(ticket);
            }
            Outcome::Nothing if !told => {}
            other => panic!("the row became {other:?}"),
        }
        assert_eq!(stream.pipeline.confirmed(), end);
    }
}
