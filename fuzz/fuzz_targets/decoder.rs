//! Any frames and any acknowledgements of what was sent, from the wire to the confirmed position: no panic, no position
//! that goes back, nothing left over.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost::pipeline::{Limits, Lsn, OnUpdate, Output, Pipeline};

#[path = "../chunks.rs"]
mod chunks;
#[path = "../../tests/support/outbox.rs"]
mod outbox;

use chunks::Chunk;

fuzz_target!(|input: &[u8]| {
    let mut audit = outbox::debezium("public", "audit");
    audit.topic = "${region}.${type}".parse().expect("a template");
    audit.timestamp = walpost::pipeline::outbox::Timestamp::Column;
    let outboxes = vec![outbox::walpost("walpost", "outbox"), audit];
    let limits = Limits { records: 64, bytes: 1 << 16 };
    let mut pipeline = Pipeline::new(outboxes, OnUpdate::Ignore, Lsn(0x16_0000_0000), limits);
    let mut in_flight = Vec::new();
    let mut input = input;
    while let Some(chunk) = chunks::next(&mut input) {
        let confirmed = pipeline.confirmed();
        match chunk {
            Chunk::Acknowledgement(_) if in_flight.is_empty() => {}
            Chunk::Acknowledgement(which) => pipeline.acknowledge(in_flight.swap_remove(which % in_flight.len())),
            Chunk::Frame(_) if !pipeline.has_room() => break,
            Chunk::Frame(frame) => match pipeline.step(frame) {
                Ok(Output::Record(record)) => in_flight.push(record.ticket),
                Ok(Output::Poison { ticket, poison }) => {
                    assert!(!poison.to_string().is_empty());
                    in_flight.push(ticket);
                }
                Ok(Output::Passed { ticket, .. }) => in_flight.push(ticket),
                Ok(Output::None | Output::ReplyRequested | Output::Ignored { .. } | Output::Undescribed(_)) => {}
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    break;
                }
            },
        }
        assert!(pipeline.confirmed() >= confirmed);
        assert_eq!(pipeline.ledger().outstanding(), in_flight.len());
    }
    in_flight.into_iter().for_each(|ticket| pipeline.acknowledge(ticket));
    assert_eq!(pipeline.ledger().outstanding_bytes(), 0);
});
