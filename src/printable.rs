//! Bytes that others wrote, made safe for a terminal.
//!
//! A control character in a payload can move the cursor, retitle the window or type into the shell; a direction mark
//! can make a line read as another. Neither is ever printed as it is.

use std::{borrow::Cow, fmt::Write};

use serde_json::{Map, Value};

/// Text as it is, but for control and direction characters and bytes that are not UTF-8, which become `\n`, `\u{9b}` and
/// `\xff`. For people: it does not tell these from a payload that holds such a sequence itself.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if drives_terminal(c) => {
                    write!(text, "\\u{{{:x}}}", u32::from(c)).expect("a String takes all that is written");
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a String takes all that is written");
        }
    }
    text
}

/// A destination as it is told of: of a URL only what names the host, for its path is often a secret that opens the door.
pub(crate) fn origin(destination: &str) -> &str {
    match destination.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            &destination[..scheme.len() + 3 + host]
        }
        None => destination,
    }
}

/// What a record is addressed to, for people, who see that an [`origin`] is not all of it.
pub(crate) fn address(address: &str) -> Cow<'_, str> {
    let origin = origin(address);
    match &address[origin.len()..] {
        "" | "/" => address.into(),
        _ => format!("{origin}/***").into(),
    }
}

/// JSON text, the same value, in which no character drives a terminal: they stand in strings only, where JSON has an
/// escape for each.
pub(crate) fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if drives_terminal(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(text, "\\u{unit:04x}").expect("a String takes all that is written");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Text under `name`; what is not UTF-8 in base64 under `name_base64`, so that nothing is lost.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => object.insert(name.to_owned(), Value::Null),
        Some(Ok(text)) => object.insert(name.to_owned(), text.into()),
        Some(Err(_)) => {
            let encoded = openssl::base64::encode_block(bytes.unwrap_or_default());
            object.insert(format!("{name}_base64"), encoded.into())
        }
    };
}

fn drives_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Direction marks, embeddings, overrides and isolates; line and paragraph separators; the byte order mark.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
            // Invisible tags.
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_and_what_drives_a_terminal_does_not() {
        for (bytes, shown) in [
            (&b"plain"[..], "plain"),
            ("Bücher 本 👍".as_bytes(), "Bücher 本 👍"),
            (b"a\x1b[2Jb", "a\\u{1b}[2Jb"),
            (b"two\nlines\r\t", "two\\nlines\\r\\t"),
            ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
            ("\u{202e}txt".as_bytes(), "\\u{202e}txt"),
            (b"\xff\xfe ok", "\\xff\\xfe ok"),
            (b"\0\x7f", "\\u{0}\\u{7f}"),
        ] {
            assert_eq!(printable(bytes), shown);
        }
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "text": "\u{9b}31m\u{7f}\u{202e}\u{e0041} ü \n" });
        let text = printable_json(&value.to_string());
        assert!(text.chars().all(|c| !drives_terminal(c)), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn bytes_become_json_without_loss() {
        let mut object = Map::new();
        insert_bytes(&mut object, "text", Some("ü".as_bytes()));
        insert_bytes(&mut object, "none", None);
        insert_bytes(&mut object, "empty", Some(b""));
        insert_bytes(&mut object, "raw", Some(b"\xff\x00"));
        assert_eq!(
            Value::Object(object),
            serde_json::json!({ "text": "ü", "none": null, "empty": "", "raw_base64": "/wA=" })
        );
    }
}
