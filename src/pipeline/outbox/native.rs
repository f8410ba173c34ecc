//! `format = "native"`: columns are key, value and headers as they are. Nothing in a payload is parsed or printed again.

use super::{
    headers::{members, plain},
    layout::{Content, Room, Written},
    poison::Reason,
};
use crate::pipeline::record::Headers;

pub(super) fn write<'a>(content: &Content<'a>, room: Room<'a>) -> Result<Written<'a>, Reason> {
    let Content { parts, occurred_at, position, mark, .. } = *content;
    let Room { own, occurred_at: occurred_at_text, position: position_text, payload, .. } = room;
    own.clear();
    if let Some(json) = parts.headers {
        members(json, |name, value| own.push((name, Some(plain(value)))))?;
    }
    let value = content.value(payload)?;
    let occurred_at = match occurred_at {
        Some(time) => {
            *occurred_at_text = *time.rfc3339();
            Some(occurred_at_text.as_slice())
        }
        None => parts.occurred_at,
    };
    let position = position.map(|position| {
        *position_text = position.text();
        position_text.as_slice()
    });
    let mut headers = Headers::new(own);
    headers.push("id", content.id);
    for (name, text) in [
        ("event_type", parts.event_type),
        ("aggregate_type", parts.aggregate_type),
        ("occurred_at", occurred_at),
        ("position", position),
        ("idempotency_key", parts.idempotency_key),
        ("aggregate_version", parts.aggregate_version),
        ("traceparent", parts.traceparent),
        ("tracestate", parts.tracestate),
    ] {
        if let Some(text) = text {
            headers.push(name, text);
        }
    }
    headers.mark(mark);
    Ok(Written { value, headers })
}
