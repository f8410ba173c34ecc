//! Whatever the bytes, the core answers with a value or a typed error: it never panics.

use proptest::{collection::vec, prelude::*};
use walpost::pipeline::{Limits, Lsn, OnUpdate, Output, Pipeline, frame::Frame, pgoutput::Message};

use crate::{
    encode::{self, Cell, Old},
    outbox, sample,
};

fn pipeline() -> Pipeline {
    let limits = Limits { records: 1_000, bytes: 1 << 20 };
    let tables = vec![outbox::walpost("walpost", "outbox")];
    let mut pipeline = Pipeline::new(tables, OnUpdate::Ignore, Lsn(0x16_0000_0000), limits);
    pipeline.take_messages(&[outbox::messages("walpost")]);
    pipeline
}

/// Steps frames until one is refused, acknowledging in another order than that of sending.
fn feed(frames: &[Vec<u8>]) {
    let mut pipeline = pipeline();
    let mut in_flight = Vec::new();
    for frame in frames {
        let before = pipeline.confirmed();
        match pipeline.step(frame) {
            Ok(Output::Record(record)) => {
                assert!(record.headers.get("id").is_some());
                in_flight.push(record.ticket);
            }
            Ok(Output::Poison { ticket, .. } | Output::Passed { ticket, .. }) => in_flight.push(ticket),
            Ok(Output::None | Output::ReplyRequested | Output::Ignored { .. } | Output::Undescribed(_)) => {}
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
        if in_flight.len() >= 3 {
            pipeline.acknowledge(in_flight.swap_remove(1));
        }
        assert!(pipeline.confirmed() >= before);
    }
    for ticket in in_flight.into_iter().rev() {
        pipeline.acknowledge(ticket);
    }
    assert_eq!(pipeline.ledger().outstanding(), 0);
}

/// Names and values that a decoder might stumble over.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "walpost",
            "outbox",
            "id",
            "aggregate_id",
            "aggregate_type",
            "payload",
            "headers",
            "",
            "public"
        ])
        .prop_map(str::to_owned),
        "[^\\x00]{0,8}",
    ]
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        Just(None),
        vec(any::<u8>(), 0..20).prop_map(Some),
        prop::sample::select(vec!["order", "\\x00", "{\"a\": 1}", "[]", "2026-01-31 08:15:00+00", "infinity"])
            .prop_map(|text| Some(text.as_bytes().to_vec())),
    ]
}

fn row() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
    vec(value(), 0..8)
}

fn cells(row: &[Option<Vec<u8>>]) -> Vec<Cell<'_>> {
    row.iter().map(|value| value.as_deref().map_or(Cell::Null, Cell::Text)).collect()
}

/// A well-formed message at a place where it may make no sense.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let lsn = || 0x16_0000_0000..0x16_0000_0040_u64;
    let id = || 0..3_u32;
    let columns = vec((name(), prop::sample::select(vec![17, 25, 1184, 3802])), 0..8);
    let complete = ["id", "aggregate_id", "payload", "aggregate_type"].map(|name| (name.to_owned(), 25));
    let columns = (columns, any::<bool>()).prop_map(move |(mut columns, whole)| {
        columns.extend(complete.iter().filter(|_| whole).cloned());
        columns
    });
    prop_oneof![
        4 => (lsn(), any::<i64>()).prop_map(|(lsn, time)| encode::begin(lsn, time, 1)),
        4 => (lsn(), lsn()).prop_map(|(lsn, end)| encode::commit(lsn, end, 0)),
        2 => (id(), name(), name(), columns).prop_map(|(id, schema, table, columns)| {
            let columns: Vec<_> = columns.iter().map(|(name, oid)| (name.as_str(), *oid)).collect();
            encode::relation(id, &schema, &table, &columns)
        }),
        6 => (id(), row()).prop_map(|(id, row)| encode::insert(id, &cells(&row))),
        1 => (id(), row()).prop_map(|(id, row)| encode::update(id, Some(Old::Full(&cells(&row))), &cells(&row))),
        1 => (id(), row()).prop_map(|(id, row)| encode::delete(id, Old::Key(&cells(&row)))),
        1 => vec(id(), 0..4).prop_map(|ids| encode::truncate(&ids)),
        1 => (any::<bool>(), lsn(), name()).prop_map(|(in_transaction, lsn, name)| encode::logical(in_transaction, lsn, &name, b"")),
    ]
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        9 => message().prop_map(|message| encode::xlog_data(0, 0, &message)),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(wal_end, asks)| encode::keepalive(wal_end, asks)),
    ]
}

/// Frames of a transaction whose begin and commit agree, around rows that may be good, at any place in the log.
fn transaction() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let columns = ["id", "aggregate_id", "payload", "aggregate_type"].map(|name| (name, 25));
    let events = vec((vec(value(), 4), any::<bool>()), 0..4);
    (0x16_0000_0000..0x16_0000_0040_u64, 0..0x40_u64, events).prop_map(move |(lsn, len, events)| {
        let mut messages = vec![encode::begin(lsn, 0, 1), encode::relation(1, "walpost", "outbox", &columns)];
        messages.extend(events.iter().map(|(row, is_good)| match is_good {
            true => encode::insert(1, &[encode::text("order"); 4]),
            false => encode::insert(1, &cells(row)),
        }));
        messages.push(encode::commit(lsn, lsn + len, 0));
        messages.iter().map(|message| encode::xlog_data(0, 0, message)).collect()
    })
}

/// A change to a stream that was whole.
#[derive(Clone, Debug)]
enum Mutation {
    Overwrite { at: prop::sample::Index, with: u8 },
    CutOff { at: prop::sample::Index },
    Insert { at: prop::sample::Index, byte: u8 },
    Drop,
    SwapWithNext,
    Double,
}

fn mutation() -> impl Strategy<Value = (prop::sample::Index, Mutation)> {
    let at = any::<prop::sample::Index>;
    let mutation = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, with)| Mutation::Overwrite { at, with }),
        at().prop_map(|at| Mutation::CutOff { at }),
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert { at, byte }),
        Just(Mutation::Drop),
        Just(Mutation::SwapWithNext),
        Just(Mutation::Double),
    ];
    (at(), mutation)
}

fn mutate(frames: &mut Vec<Vec<u8>>, which: usize, mutation: &Mutation) {
    let len = frames[which].len();
    match mutation {
        Mutation::Overwrite { at, with } if len > 0 => frames[which][at.index(len)] = *with,
        Mutation::CutOff { at } => frames[which].truncate(at.index(len + 1)),
        Mutation::Insert { at, byte } => frames[which].insert(at.index(len + 1), *byte),
        Mutation::Drop if frames.len() > 1 => drop(frames.remove(which)),
        Mutation::SwapWithNext => {
            let next = (which + 1) % frames.len();
            frames.swap(which, next);
        }
        Mutation::Double => frames.insert(which, frames[which].clone()),
        Mutation::Overwrite { .. } | Mutation::Drop => {}
    }
}

#[test]
fn the_sample_is_whole() {
    let frames = sample::frames();
    let mut pipeline = pipeline();
    let mut in_flight = Vec::new();
    for frame in &frames {
        match pipeline.step(frame).unwrap() {
            Output::Record(record) => in_flight.push(record.ticket),
            Output::Poison { ticket, .. } | Output::Passed { ticket, .. } => in_flight.push(ticket),
            Output::None | Output::ReplyRequested | Output::Ignored { .. } | Output::Undescribed(_) => {}
        }
    }
    // One is a message that is not transactional.
    assert_eq!(in_flight.len(), 5);
    in_flight.into_iter().for_each(|ticket| pipeline.acknowledge(ticket));
    assert_eq!(pipeline.confirmed(), Lsn(0x16_0000_0230));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Frame::parse(&bytes);
        if let Ok(Message::Insert { new, .. }) = Message::parse(&bytes) {
            let _ = new.read(|_, _| ());
        }
        feed(&[bytes.clone(), encode::xlog_data(0, 0, &bytes)]);
    }

    #[test]
    fn any_message_may_come_at_any_time(frames in vec(frame(), 0..40)) {
        feed(&frames);
    }

    #[test]
    fn transactions_may_come_in_any_order(parts in vec(prop_oneof![9 => transaction(), 1 => vec(frame(), 1)], 0..8)) {
        feed(&parts.concat());
    }

    #[test]
    fn a_stream_may_be_broken_anywhere(mutations in vec(mutation(), 1..4)) {
        let mut frames = sample::frames();
        for (which, mutation) in &mutations {
            let which = which.index(frames.len());
            mutate(&mut frames, which, mutation);
        }
        feed(&frames);
    }
}
