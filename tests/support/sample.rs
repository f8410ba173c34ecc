//! A short stream with every message in it, in an order that a server could send: what mutations start from.
#![allow(dead_code)] // each user needs another part

use crate::encode::{self, Cell, Old, oid, text};

/// Frames of three transactions on the table `walpost.outbox` and what comes between them. The first begins at
/// `16/100`.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let data = |message: Vec<u8>| encode::xlog_data(0x16_0000_0100, 0x16_0000_0400, &message);
    let columns = [
        ("id", oid::UUID),
        ("aggregate_type", oid::ENUM),
        ("aggregate_id", oid::TEXT),
        ("payload", oid::BYTEA),
        ("headers", oid::JSONB),
        ("occurred_at", oid::TIMESTAMPTZ),
    ];
    let time = text("2026-01-31 08:15:00.25+00");
    let row = [text("e1"), text("order"), text("o-1"), text("\\x00ff"), text("{\"a\": \"b\", \"c\": 1}"), time];
    let sparse = [text("e2"), text("a b"), Cell::Null, Cell::Null, Cell::Null, Cell::Null];
    vec![
        data(encode::begin(0x16_0000_0100, 1, 731)),
        data(encode::origin(0x16_0000_0100, "elsewhere")),
        data(encode::type_name(oid::ENUM, "public", "kind")),
        data(encode::relation(1, "walpost", "outbox", &columns)),
        data(encode::insert(1, &row)),
        encode::keepalive(0x16_0000_0100, true),
        data(encode::insert(1, &row)),
        data(encode::stream_abort(731, 732)),
        data(encode::commit(0x16_0000_0100, 0x16_0000_0130, 1)),
        data(encode::begin(0x16_0000_0130, 2, 733)),
        data(encode::commit(0x16_0000_0130, 0x16_0000_0160, 2)),
        data(encode::logical(false, 0x16_0000_0160, "walpost", b"{}")),
        data(encode::begin(0x16_0000_0200, 3, 734)),
        data(encode::relation(2, "public", "orders", &[("id", oid::INT8)])),
        data(encode::insert(2, &[text("1")])),
        data(encode::update(1, Some(Old::Full(&row)), &[Cell::Unchanged; 6])),
        data(encode::delete(1, Old::Key(&sparse))),
        data(encode::truncate(&[1, 2])),
        data(encode::insert(1, &row)),
        data(encode::insert(1, &sparse)),
        data(encode::commit(0x16_0000_0200, 0x16_0000_0230, 3)),
        encode::keepalive(0x16_0000_0400, false),
    ]
}
