//! The context of a span, as OpenTelemetry's propagator for [W3C Trace Context](https://www.w3.org/TR/trace-context/)
//! reads it and hands it on. Baggage is not handed on; the original drops it too.

use openssl::sha::sha256;

use crate::config::connector::properties;

const TRACEPARENT_LEN: usize = 55;
const TRACE_ID_LEN: usize = 32;
const MEMBERS_MAX: usize = 32;
const KEY_MAX: usize = 256;
const VALUE_MAX: usize = 256;
/// Before the `@` of a key, and behind it.
const TENANT_MAX: usize = 241;
const SYSTEM_MAX: usize = 14;

/// `traceparent` and `tracestate` of a span whose parent is in this text of Java properties; of a new trace, which is
/// sampled, if there is none. The `seed` is another for each event, and gives the new ids.
pub(super) fn headers(context: Option<&str>, seed: &str) -> Vec<(&'static str, String)> {
    let hash: String = sha256(seed.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let (new_trace, span) = (&hash[..TRACE_ID_LEN], &hash[TRACE_ID_LEN..TRACE_ID_LEN + 16]);
    let properties = context.and_then(|text| properties::parse(text).ok()).unwrap_or_default();
    let property =
        |name: &str| properties.iter().rev().find(|(key, ..)| key == name).map(|(_, value, _)| value.as_str());
    let Some((trace, sampled)) = property("traceparent").and_then(parent) else {
        return vec![("traceparent", format!("00-{new_trace}-{span}-01"))];
    };
    let mut headers = vec![("traceparent", format!("00-{trace}-{span}-0{}", u8::from(sampled)))];
    if let Some(state) = property("tracestate").and_then(state) {
        headers.push(("tracestate", state));
    }
    headers
}

/// The trace's id, and whether it is sampled.
fn parent(traceparent: &str) -> Option<(&str, bool)> {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |text: &str, len: usize| text.len() == len && is_hex(text) && text.bytes().any(|byte| byte != b'0');
    let known = traceparent.get(..TRACEPARENT_LEN)?;
    let rest = &traceparent[TRACEPARENT_LEN..];
    let [version, trace, span, flags] = known.split('-').collect::<Vec<_>>()[..] else { return None };
    let later = version != "00" && rest.starts_with('-');
    let right = version.len() == 2
        && is_hex(version)
        && version != "ff"
        && (rest.is_empty() || later)
        && is_id(trace, TRACE_ID_LEN)
        && is_id(span, 16)
        && flags.len() == 2
        && is_hex(flags);
    let flags = u8::from_str_radix(flags, 16).ok()?;
    right.then_some((trace, flags & 1 != 0))
}

/// All members, or none if one is invalid.
fn state(tracestate: &str) -> Option<String> {
    let blank = [' ', '\t'];
    let pieces = tracestate.split(',').collect::<Vec<_>>();
    let last = pieces.len() - 1;
    // White space counts beside commas alone, and what is empty at the end does not count.
    let mut members: Vec<&str> = pieces
        .iter()
        .enumerate()
        .map(|(at, piece)| {
            let piece = if at == 0 { piece } else { piece.trim_start_matches(blank) };
            if at == last { piece } else { piece.trim_end_matches(blank) }
        })
        .collect();
    while members.last().is_some_and(|member| member.is_empty()) {
        members.pop();
    }
    let mut keys = Vec::new();
    for member in &members {
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) || keys.contains(&key) {
            return None;
        }
        keys.push(key);
    }
    (1..=MEMBERS_MAX).contains(&members.len()).then(|| members.join(","))
}

fn is_key(key: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase();
    let legal = |byte: u8| letter(byte) || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'@' | b'*' | b'/');
    let Some(&first) = key.as_bytes().first() else { return false };
    if key.len() > KEY_MAX || !key.bytes().all(legal) {
        return false;
    }
    match key.split_once('@') {
        None => letter(first),
        Some((tenant, system)) => {
            (letter(first) || first.is_ascii_digit())
                && tenant.len() <= TENANT_MAX
                && (1..=SYSTEM_MAX).contains(&system.len())
                && !system.contains('@')
        }
    }
}

fn is_value(value: &str) -> bool {
    let legal = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    !value.is_empty() && value.len() <= VALUE_MAX && value.bytes().all(legal) && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(context: &str) -> Vec<(&'static str, String)> {
        headers(Some(context), "seed")
    }

    #[test]
    fn a_span_keeps_the_trace_and_gets_an_id() {
        let headers = of(&format!("#java.util.Properties\n#Mon Jan 01 00:00:00 UTC 2024\ntraceparent={PARENT}\n"));
        let [(name, value)] = &headers[..] else { panic!("{headers:?}") };
        assert_eq!((*name, value.len()), ("traceparent", 55));
        assert!(value.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && value.ends_with("-01"), "{value}");
        assert_ne!(value, PARENT);
        let unsampled = of("traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02");
        assert!(unsampled[0].1.ends_with("-00"));
        let other = super::headers(Some(&format!("traceparent={PARENT}")), "another seed");
        assert_ne!(*value, other[0].1);
    }

    #[test]
    fn the_state_follows_and_baggage_does_not() {
        let headers = of(&format!("traceparent={PARENT}\ntracestate=a=b,c=d\nbaggage=k=v"));
        assert_eq!(headers[1..], [("tracestate", "a=b,c=d".to_owned())]);
        assert_eq!(state("a=b \t, 1x@y=c d,"), Some("a=b,1x@y=c d".to_owned()));
        for invalid in ["", " a=b", "a=b ", "a", "a=b,a=c", "A=b", "1=b", "a@=b", "a=b=c", "a=,b=c", ",a=b"] {
            assert_eq!(state(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn what_is_no_context_starts_a_trace() {
        for context in [
            None,
            Some("garbage"),
            Some("traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"),
            Some("traceparent=ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            Some("traceparent=00-00000000000000000000000000000000-b7ad6b7169203331-01"),
            Some("traceparent=00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            Some(r"traceparent=\u00"),
        ] {
            let headers = headers(context, "seed");
            let [("traceparent", value)] = &headers[..] else { panic!("{headers:?}") };
            assert!(value.starts_with("00-") && value.ends_with("-01") && !value.contains("0af7"), "{value}");
        }
    }
}
