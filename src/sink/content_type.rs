//! What a payload is, where a sink says it beside the payload.

use serde::de::IgnoredAny;

use crate::pipeline::Record;

/// Longest payload that is read as a number, `true`, `false` or `null`.
const SCALAR_BYTES_MAX: usize = 64;

/// The record's own header, which is not checked here; else a guess. None for a tombstone.
pub(super) fn content_type<'a>(record: &Record<'a>) -> Option<&'a [u8]> {
    let value = record.value?;
    let own = record.headers.iter().find(|(name, _)| "content-type".eq_ignore_ascii_case(name));
    Some(
        own.and_then(|(_, own)| own)
            .unwrap_or_else(|| if looks_like_json(value) { b"application/json" } else { b"application/octet-stream" }),
    )
}

/// Whether bytes may be JSON, by their ends: payloads are not parsed, but for short ones that are no object, array or
/// string.
fn looks_like_json(payload: &[u8]) -> bool {
    let trimmed = payload.trim_ascii();
    match (trimmed.first(), trimmed.last()) {
        (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')) => std::str::from_utf8(trimmed).is_ok(),
        (Some(b'"'), Some(b'"')) => trimmed.len() > 1 && std::str::from_utf8(trimmed).is_ok(),
        (Some(b'0'..=b'9' | b'-' | b't' | b'f' | b'n'), _) if trimmed.len() <= SCALAR_BYTES_MAX => {
            serde_json::from_slice::<IgnoredAny>(trimmed).is_ok()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_by_its_ends() {
        for json in ["{}", " {\"a\": 1}\n", "[1,2]", "\"text\"", "12.5", "-1e3", "true", "null"] {
            assert!(looks_like_json(json.as_bytes()), "{json}");
        }
        for other in ["", " ", "hello", "{", "\"", "<a/>", "nothing", "12 apples", "2026-11-30"] {
            assert!(!looks_like_json(other.as_bytes()), "{other}");
        }
        assert!(!looks_like_json(b"{\xff}"));
        assert!(!looks_like_json(b"\x00\x01"));
    }
}
