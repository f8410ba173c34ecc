//! What is no event: updates, deletes, truncates, logical messages, keepalives, rows of other tables.

use walpost::pipeline::{Error, Lsn, OnUpdate};

use crate::{
    encode::{self, Cell, Old, oid, text},
    outbox,
    stream::{Outcome, START, Stream},
};

const COLUMNS: [(&str, u32); 4] =
    [("id", oid::UUID), ("aggregate_type", oid::TEXT), ("aggregate_id", oid::TEXT), ("payload", oid::JSONB)];
const ROW: [Cell<'static>; 4] = [Cell::Text(b"e1"), Cell::Text(b"order"), Cell::Text(b"o-1"), Cell::Text(b"{}")];

/// A stream in a transaction that knows an outbox as 1, another as 2, and a table that is none as 3.
fn stream(on_update: OnUpdate) -> Stream {
    let outboxes = vec![outbox::walpost("walpost", "outbox"), outbox::walpost("walpost", "Other")];
    let mut stream = Stream::with(outboxes, on_update);
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &COLUMNS));
    stream.quiet(&encode::relation(2, "walpost", "Other", &COLUMNS));
    stream.quiet(&encode::relation(3, "public", "orders", &[("id", oid::INT8)]));
    stream
}

#[track_caller]
fn notice(stream: &mut Stream, message: &[u8]) -> String {
    match stream.step(message).expect("the message can be read") {
        Outcome::Ignored(notice) => notice,
        other => panic!("the message gave {other:?}"),
    }
}

#[test]
fn a_change_of_an_outbox_is_said_once_a_table_and_kind() {
    let mut stream = stream(OnUpdate::Ignore);
    let update = encode::update(1, None, &ROW);
    let delete = encode::delete(1, Old::Key(&ROW));
    assert_eq!(notice(&mut stream, &update), "Update walpost.outbox");
    assert_eq!(notice(&mut stream, &delete), "Delete walpost.outbox");
    assert_eq!(notice(&mut stream, &encode::truncate(&[1])), "Truncate walpost.outbox");
    stream.quiet(&update);
    stream.quiet(&delete);
    stream.quiet(&encode::truncate(&[1]));
    assert_eq!(notice(&mut stream, &encode::update(2, Some(Old::Full(&ROW)), &ROW)), "Update walpost.\"Other\"");
    let event = stream.insert(1, &ROW);
    assert_eq!(event.position, "0000001600000100-00000000", "what is no event takes no ordinal");
}

#[test]
fn a_truncate_of_several_tables_looks_at_each() {
    let mut stream = stream(OnUpdate::Ignore);
    assert_eq!(notice(&mut stream, &encode::truncate(&[3, 2])), "Truncate walpost.\"Other\"");
    assert_eq!(notice(&mut stream, &encode::truncate(&[2, 3, 1])), "Truncate walpost.outbox");
    stream.quiet(&encode::truncate(&[1, 2, 3]));
    stream.quiet(&encode::truncate(&[]));
}

#[test]
fn a_change_of_an_outbox_halts_where_that_is_asked_for() {
    for (message, kind) in [
        (encode::update(1, None, &ROW), "Update"),
        (encode::delete(1, Old::Key(&ROW)), "Delete"),
        (encode::truncate(&[3, 1]), "Truncate"),
    ] {
        let error = stream(OnUpdate::Halt).step(&message).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }));
        let message = error.to_string();
        assert!(message.starts_with(&format!("a row of outbox walpost.outbox was changed ({kind})")), "{message}");
        assert!(message.contains("publish = 'insert'"), "{message}");
    }
}

#[test]
fn changes_of_other_tables_never_halt_and_their_rows_are_said_once() {
    let mut stream = stream(OnUpdate::Halt);
    let insert = encode::insert(3, &[text("1")]);
    assert_eq!(notice(&mut stream, &insert), "Insert public.orders");
    stream.quiet(&insert);
    stream.quiet(&encode::update(3, None, &[text("1")]));
    stream.quiet(&encode::delete(3, Old::Key(&[text("1")])));
    stream.quiet(&encode::truncate(&[3]));
}

#[test]
fn logical_messages_origins_types_and_stray_aborts_change_nothing() {
    let mut stream = stream(OnUpdate::Halt);
    let nothing = [
        encode::logical(true, START, "another tool", &[0xFF; 100]),
        encode::logical(false, START, "", b""),
        encode::origin(START, "elsewhere"),
        encode::type_name(oid::ENUM, "public", "kind"),
        encode::stream_abort(731, 732),
    ];
    nothing.iter().for_each(|message| stream.quiet(message));
    let event = stream.insert(1, &ROW);
    stream.commit();
    nothing.iter().for_each(|message| stream.quiet(message));
    assert_eq!(stream.pipeline.confirmed(), Lsn(START));
    stream.pipeline.acknowledge(event.ticket);
    assert_eq!(stream.pipeline.confirmed(), Lsn(START + 0x130));
    nothing.iter().for_each(|message| stream.quiet(message));
    assert_eq!(stream.pipeline.confirmed(), Lsn(START + 0x130), "a message's position confirms nothing");
}

#[test]
fn a_keepalive_is_answered_wherever_it_comes_and_confirms_only_when_all_is_idle() {
    let mut stream = stream(OnUpdate::Halt);
    let asking = encode::keepalive(START + 0x1000, true);
    let answered = |stream: &mut Stream| matches!(stream.frame(&asking), Ok(Outcome::ReplyRequested));
    assert!(answered(&mut stream));
    let event = stream.insert(1, &ROW);
    assert!(answered(&mut stream));
    stream.commit();
    assert!(answered(&mut stream));
    stream.pipeline.acknowledge(event.ticket);
    assert_eq!(stream.pipeline.confirmed(), Lsn(START + 0x130));
    assert!(answered(&mut stream));
    assert_eq!(stream.pipeline.confirmed(), Lsn(START + 0x1000));
}
