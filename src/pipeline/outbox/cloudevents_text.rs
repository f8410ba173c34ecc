//! What names and values CloudEvents allow.

use std::fmt;

/// Why a text is no value of an attribute that must not be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    Empty,
    Encoding,
    Character,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Empty => "is empty",
            Flaw::Encoding => "is no UTF-8",
            Flaw::Character => "has a control character or a noncharacter of Unicode",
        })
    }
}

/// What is wrong with a text.
pub(crate) fn flaw(text: &str) -> Option<Flaw> {
    let is_printable = |byte: u8| matches!(byte, b' '..=b'~');
    if text.is_empty() {
        Some(Flaw::Empty)
    } else if text.bytes().all(is_printable) || text.chars().all(is_allowed) {
        None
    } else {
        Some(Flaw::Character)
    }
}

/// A `String` of CloudEvents may have the character.
fn is_allowed(c: char) -> bool {
    let is_noncharacter = matches!(c, '\u{FDD0}'..='\u{FDEF}') || u32::from(c) & 0xFFFE == 0xFFFE;
    !c.is_control() && !is_noncharacter
}

/// An attribute may be called that.
pub(super) fn is_extension(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// `type/subtype` with parameters or without, as RFC 2046 has it.
pub(crate) fn is_media_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte))
    };
    let is_printable = parameters.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let is_essence =
        essence.trim_end_matches(' ').split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    is_essence && is_printable
}

/// The media type is that of events in a format of CloudEvents: by it consumers tell the modes apart.
pub(crate) fn is_envelope(media_type: &str) -> bool {
    const ENVELOPES: &str = "application/cloudevents";
    media_type.get(..ENVELOPES.len()).is_some_and(|start| start.eq_ignore_ascii_case(ENVELOPES))
}

/// The media type is one of JSON.
pub(super) fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype).to_ascii_lowercase();
    subtype == "json" || subtype.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_no_control_characters_and_no_noncharacters() {
        for text in ["a", " ", "~", "é", "漢 🦀", "\u{FDCF}", "\u{FDF0}", "\u{FFFD}", "\u{A0}", "\u{E000}"] {
            assert_eq!(flaw(text), None, "{text:?}");
        }
        for text in ["\0", "a\nb", "\t", "\u{7F}", "\u{80}", "\u{9F}", "\u{FDD0}", "\u{FDEF}", "\u{FFFE}", "\u{10FFFF}"]
        {
            assert_eq!(flaw(text), Some(Flaw::Character), "{text:?}");
        }
        assert_eq!(flaw(""), Some(Flaw::Empty));
    }

    #[test]
    fn names_are_lower_case_letters_and_digits() {
        assert!(["a", "tenant", "x1", "1"].into_iter().all(is_extension));
        assert!(!["", "Tenant", "x-y", "x_y", "é", "a b"].into_iter().any(is_extension));
    }

    #[test]
    fn media_types_have_a_type_and_a_subtype() {
        for text in ["application/json", "text/plain; charset=utf-8", "text/plain ;x=\"a b\"", "a/b+c"] {
            assert!(is_media_type(text), "{text}");
        }
        for text in ["", "json", "/", "a/", "/b", "a/b/c", "a b/c", "a/b c", "a/b;\n", "é/b", "a/b,c/d", "a/b\n"] {
            assert!(!is_media_type(text), "{text}");
        }
    }

    #[test]
    fn json_is_a_subtype_or_the_end_of_one() {
        for text in ["application/json", "TEXT/JSON; charset=utf-8", "application/vnd.x+json", "a/B+Json ;q=1"] {
            assert!(is_json(text), "{text}");
        }
        for text in ["application/jsonl", "application/x-json", "application/xml;a=/json", "json"] {
            assert!(!is_json(text), "{text}");
        }
    }
}
