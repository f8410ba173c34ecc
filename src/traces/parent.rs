//! `traceparent`: <https://www.w3.org/TR/trace-context/#traceparent-header>
//!
//! `00-` trace id of 32 hex digits `-` span id of 16 `-` flags of two, all in lower case. Of a later version what follows is
//! passed over.

const SAMPLED: u8 = 1;

/// The span that inserted an event, of a trace that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
}

impl Parent {
    /// None: it is malformed, or its trace is not sampled.
    pub(super) fn sampled(text: &[u8]) -> Option<Parent> {
        let mut parts = text.split(|byte| *byte == b'-');
        let [version]: [u8; 1] = hex(parts.next()?)?;
        let parent = Parent { trace_id: hex(parts.next()?)?, span_id: hex(parts.next()?)? };
        let [flags]: [u8; 1] = hex(parts.next()?)?;
        let is_whole = version != 0xff && (version > 0 || parts.next().is_none());
        let is_named = parent.trace_id != [0; 16] && parent.span_id != [0; 8];
        (is_whole && is_named && flags & SAMPLED != 0).then_some(parent)
    }
}

fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_and_sampled_is_a_parent() {
        let parent = Parent::sampled(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(parent.trace_id[..2], [0x4b, 0xf9]);
        assert_eq!(parent.span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert!(Parent::sampled(b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more").is_some());
        for not in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "",
        ] {
            assert_eq!(Parent::sampled(not.as_bytes()), None, "{not}");
        }
    }
}
