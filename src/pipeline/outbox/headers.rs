//! The row's own headers: the members of a JSON object.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::{Deserializer, Error, error::Category, value::RawValue};

use super::poison::Reason;

/// Hands each member to `each`, in order.
pub(super) fn members(json: &[u8], each: impl FnMut(String, &RawValue)) -> Result<(), Reason> {
    struct Members<F>(F);

    impl<'de, F: FnMut(String, &RawValue)> Visitor<'de> for Members<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                (self.0)(name, value);
            }
            Ok(())
        }
    }

    let mut deserializer = Deserializer::from_slice(json);
    let read = deserializer.deserialize_map(Members(each)).and_then(|()| deserializer.end());
    read.map_err(|error| Reason::Headers(fault(&error)))
}

/// A string as it is, another value as its JSON text. So is a string that no text can hold, such as a lone surrogate.
pub(super) fn plain(value: &RawValue) -> Vec<u8> {
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) => text.into_bytes(),
        Err(_) => value.get().as_bytes().to_vec(),
    }
}

/// What is wrong, and nothing of what the column holds: serde's words for another kind of value repeat the value.
pub(in crate::pipeline) fn fault(error: &Error) -> String {
    match error.classify() {
        Category::Data => "it is JSON of another kind".to_owned(),
        Category::Io | Category::Syntax | Category::Eof => error.to_string(),
    }
}
