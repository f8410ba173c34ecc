//! pgoutput's messages, written by hand from the manual's page, so that decoder and encoder do not share a mistake.

use walpost::pipeline::{
    Lsn, PgTime,
    frame::Frame,
    pgoutput::{Begin, Column, Commit, Logical, Message, Relation, RelationId, TypeOid, Value},
    wire::WireError,
};

use crate::encode::{self, Cell, Old};

const BEGIN: &[u8] = b"B\x00\x00\x00\x16\xB3\x74\xD8\x48\x00\x02\xEC\xAB\x07\x88\xBC\xD0\x00\x00\x02\xDB";
const COMMIT: &[u8] =
    b"C\x00\x00\x00\x00\x16\xB3\x74\xD8\x48\x00\x00\x00\x16\xB3\x74\xD8\x78\x00\x02\xEC\xAB\x07\x88\xBC\xD0";
const ORIGIN: &[u8] = b"O\x00\x00\x00\x16\xB3\x74\xD8\x48elsewhere\x00";
const RELATION: &[u8] = b"R\x00\x00\x40\x00walpost\x00outbox\x00d\x00\x02\
    \x01id\x00\x00\x00\x0B\x86\xFF\xFF\xFF\xFF\
    \x00K\xC3\xA4se \"1\"\x00\x00\x00\x00\x19\x00\x00\x00\x68";
const TYPE: &[u8] = b"Y\x00\x00\x40\x1Bpublic\x00kind\x00";
const INSERT: &[u8] = b"I\x00\x00\x40\x00N\x00\x04t\x00\x00\x00\x02{}nut\x00\x00\x00\x00";
const UPDATE: &[u8] = b"U\x00\x00\x40\x00N\x00\x01t\x00\x00\x00\x01x";
const UPDATE_OF_KEY: &[u8] = b"U\x00\x00\x40\x00K\x00\x01t\x00\x00\x00\x01wN\x00\x01t\x00\x00\x00\x01x";
const UPDATE_OF_ALL: &[u8] = b"U\x00\x00\x40\x00O\x00\x02nt\x00\x00\x00\x01wN\x00\x02nu";
const DELETE: &[u8] = b"D\x00\x00\x40\x00K\x00\x01t\x00\x00\x00\x01w";
const DELETE_OF_ALL: &[u8] = b"D\x00\x00\x40\x00O\x00\x01n";
const TRUNCATE: &[u8] = b"T\x00\x00\x00\x02\x03\x00\x00\x40\x00\x00\x00\x40\x06";
const LOGICAL: &[u8] = b"M\x01\x00\x00\x00\x16\xB3\x74\xD8\x48walpost\x00\x00\x00\x00\x03a\x00\xFF";
const STREAM_ABORT: &[u8] = b"A\x00\x00\x02\xDB\x00\x00\x02\xDC";

const ALL: [&[u8]; 14] = [
    BEGIN,
    COMMIT,
    ORIGIN,
    RELATION,
    TYPE,
    INSERT,
    UPDATE,
    UPDATE_OF_KEY,
    UPDATE_OF_ALL,
    DELETE,
    DELETE_OF_ALL,
    TRUNCATE,
    LOGICAL,
    STREAM_ABORT,
];

const OUTBOX: RelationId = RelationId(0x4000);

#[track_caller]
fn parse(message: &[u8]) -> Message<'_> {
    Message::parse(message).expect("the message is whole")
}

#[test]
fn begin_has_the_start_of_the_commit_record_and_the_commit_time() {
    let begin = Begin { final_lsn: Lsn(0x16_B374_D848), commit_time: PgTime(0x0002_ECAB_0788_BCD0), xid: 731 };
    assert_eq!(parse(BEGIN), Message::Begin(begin));
    assert_eq!(encode::begin(0x16_B374_D848, 0x0002_ECAB_0788_BCD0, 731), BEGIN);
}

#[test]
fn commit_has_start_and_end_of_the_commit_record() {
    let commit = Commit { commit_lsn: Lsn(0x16_B374_D848), end_lsn: Lsn(0x16_B374_D878) };
    assert_eq!(parse(COMMIT), Message::Commit(commit));
    assert_eq!(encode::commit(0x16_B374_D848, 0x16_B374_D878, 0x0002_ECAB_0788_BCD0), COMMIT);
}

#[test]
fn relation_has_names_and_types_in_order() {
    let relation = Relation {
        id: OUTBOX,
        schema: "walpost",
        name: "outbox",
        columns: vec![
            Column { name: "id", type_oid: TypeOid(2950), typmod: -1 },
            Column { name: "Käse \"1\"", type_oid: TypeOid(25), typmod: 104 },
        ],
    };
    assert_eq!(parse(RELATION), Message::Relation(relation));
}

#[test]
fn an_empty_schema_stands_for_the_catalog() {
    let message = encode::relation(1, "", "pg_class", &[]);
    let relation = Relation { id: RelationId(1), schema: "pg_catalog", name: "pg_class", columns: vec![] };
    assert_eq!(parse(&message), Message::Relation(relation));
}

#[test]
fn insert_has_the_new_row() {
    let Message::Insert { relation, new } = parse(INSERT) else { panic!("no insert") };
    let mut row = Vec::new();
    new.read(|column, value| row.push((column, value))).unwrap();
    assert_eq!(relation, OUTBOX);
    assert_eq!(row, [(0, Value::Text(b"{}")), (1, Value::Null), (2, Value::Unchanged), (3, Value::Text(b""))]);
    let cells = [encode::text("{}"), Cell::Null, Cell::Unchanged, encode::text("")];
    assert_eq!(encode::insert(0x4000, &cells), INSERT);
}

#[test]
fn updates_and_deletes_name_their_relation_whatever_old_row_they_bring() {
    for update in [UPDATE, UPDATE_OF_KEY, UPDATE_OF_ALL] {
        assert!(matches!(parse(update), Message::Update { relation: OUTBOX, .. }));
    }
    for delete in [DELETE, DELETE_OF_ALL] {
        assert!(matches!(parse(delete), Message::Delete { relation: OUTBOX, .. }));
    }
    assert_eq!(encode::update(0x4000, None, &[encode::text("x")]), UPDATE);
    assert_eq!(encode::update(0x4000, Some(Old::Key(&[encode::text("w")])), &[encode::text("x")]), UPDATE_OF_KEY);
    assert_eq!(encode::delete(0x4000, Old::Key(&[encode::text("w")])), DELETE);
    assert_eq!(encode::delete(0x4000, Old::Full(&[Cell::Null])), DELETE_OF_ALL);
}

#[test]
fn truncate_names_all_its_relations() {
    assert_eq!(parse(TRUNCATE), Message::Truncate { relations: vec![OUTBOX, RelationId(0x4006)] });
}

#[test]
fn a_logical_message_has_prefix_and_any_bytes() {
    let logical = Logical { transactional: true, lsn: Lsn(0x16_B374_D848), prefix: "walpost", content: b"a\x00\xFF" };
    assert_eq!(parse(LOGICAL), Message::Logical(logical));
    assert_eq!(encode::logical(true, 0x16_B374_D848, "walpost", b"a\x00\xFF"), LOGICAL);
    let five_megabytes = vec![0xFF; 5 << 20];
    let message = encode::logical(false, 7, "", &five_megabytes);
    let logical = Logical { transactional: false, lsn: Lsn(7), prefix: "", content: &five_megabytes };
    assert_eq!(parse(&message), Message::Logical(logical));
}

#[test]
fn origin_type_and_stream_abort_are_known_and_carry_nothing() {
    assert_eq!(parse(ORIGIN), Message::Origin);
    assert_eq!(parse(TYPE), Message::Type);
    assert_eq!(parse(STREAM_ABORT), Message::StreamAbort);
    assert_eq!(encode::origin(0x16_B374_D848, "elsewhere"), ORIGIN);
    assert_eq!(encode::type_name(16_411, "public", "kind"), TYPE);
    assert_eq!(encode::stream_abort(731, 732), STREAM_ABORT);
}

/// Reads a message to its end: an insert's row is read by its layout, later than the rest.
fn read(message: &[u8]) -> Result<(), WireError> {
    match Message::parse(message)? {
        Message::Insert { new, .. } => new.read(|_, _| ()),
        Message::Begin(_)
        | Message::Commit(_)
        | Message::Origin
        | Message::Relation(_)
        | Message::Type
        | Message::Update { .. }
        | Message::Delete { .. }
        | Message::Truncate { .. }
        | Message::Logical(_)
        | Message::StreamAbort => Ok(()),
    }
}

#[test]
fn a_message_that_breaks_off_anywhere_is_an_error_that_says_where() {
    for message in ALL {
        assert_eq!(read(message), Ok(()));
        // A stream abort is ignored by its tag alone.
        let whole = if message == STREAM_ABORT { 1 } else { message.len() };
        for len in 0..whole {
            match read(&message[..len]) {
                Err(WireError::Short { offset, .. }) => assert_eq!(offset, len),
                Err(WireError::Unterminated { offset }) => assert!(offset <= len),
                other => panic!("{:?} of {message:?} gave {other:?}", &message[..len]),
            }
        }
    }
}

#[test]
fn a_frame_that_breaks_off_anywhere_is_an_error() {
    let data = encode::xlog_data(1, 2, b"");
    let alive = encode::keepalive(3, true);
    assert_eq!(Frame::parse(&data), Ok(Frame::XLogData { start: Lsn(1), message: b"" }));
    assert_eq!(Frame::parse(&alive), Ok(Frame::Keepalive { wal_end: Lsn(3), reply_requested: true }));
    for frame in [data, alive] {
        for len in 0..frame.len() {
            let error = Frame::parse(&frame[..len]).unwrap_err();
            assert!(matches!(error, WireError::Short { offset, .. } if offset == len), "{error}");
        }
    }
}

#[test]
fn unknown_tags_are_named_with_their_offset() {
    let unknown = |offset, value, what| Err(WireError::Unknown { offset, value, what });
    for tag in (0..=u8::MAX).filter(|tag| !b"ABCDIMORTUY".contains(tag)) {
        assert_eq!(read(&[tag]), unknown(0, tag, "pgoutput message"));
    }
    assert_eq!(read(b"I\x00\x00\x40\x00K\x00\x00"), unknown(5, b'K', "kind of new row"));
    assert_eq!(read(b"U\x00\x00\x40\x00x\x00\x00"), unknown(5, b'x', "kind of row"));
    assert_eq!(read(b"U\x00\x00\x40\x00K\x00\x00O\x00\x00"), unknown(8, b'O', "kind of new row"));
    assert_eq!(read(b"D\x00\x00\x40\x00N\x00\x00"), unknown(5, b'N', "kind of old row"));
    let binary = read(b"I\x00\x00\x40\x00N\x00\x01b\x00\x00\x00\x01x");
    assert_eq!(binary, unknown(8, b'b', "kind of column in text format"));
}

#[test]
fn lengths_are_not_trusted() {
    let minus_one = b"\xFF\xFF\xFF\xFF";
    let huge = b"\x7F\xFF\xFF\xFF";
    let value = |length: &[u8]| [b"I\x00\x00\x40\x00N\x00\x01t", length, b"x"].concat();
    assert_eq!(read(&value(minus_one)), Err(WireError::NegativeLength { offset: 9 }));
    assert!(matches!(read(&value(huge)), Err(WireError::Short { .. })));
    let truncate = |count: &[u8]| [b"T", count, b"\x00\x00\x00\x40\x00"].concat();
    assert_eq!(read(&truncate(minus_one)), Err(WireError::NegativeLength { offset: 1 }));
    assert!(matches!(read(&truncate(huge)), Err(WireError::Short { .. })));
    let content = |length: &[u8]| [b"M\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00", length, b"x"].concat();
    assert_eq!(read(&content(minus_one)), Err(WireError::NegativeLength { offset: 11 }));
    assert!(matches!(read(&content(huge)), Err(WireError::Short { .. })));
}
