//! Idempotency keys from documents: the same as `walpost.idempotency_key` makes in the database (`sql/idempotency_key.sql`).
//!
//! A key is the SHA-256 of canonical JSON: members of objects sorted by code point, no white space, characters as they are,
//! numbers as `jsonb` prints them. docs/idempotency.md says what that means for other languages.

use std::fmt::Write;

use openssl::sha::sha256;
use serde_json::Value;

/// How deep arrays and objects may be nested.
pub const DEPTH_MAX: usize = 100;
/// What PostgreSQL's `numeric` can hold, before the point and after it.
const DIGITS_MAX: usize = 131_072;
const DECIMALS_MAX: usize = 16_383;

/// Why a document has no key. The database refuses it too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "the document is nested deeper than {DEPTH_MAX} levels; make the key from the part that tells one request from another"
    )]
    Depth,
    #[error("a number of the document has more digits than PostgreSQL's numeric can hold; send it as a string")]
    Number,
    #[error("a string of the document has the character U+0000, which jsonb cannot hold; leave it out")]
    Nul,
}

/// The key of a document: 64 lower-case hexadecimal digits.
pub fn key(document: &Value) -> Result<String, Error> {
    let digest = sha256(canonical(document)?.as_bytes());
    Ok(digest.iter().fold(String::with_capacity(64), |mut key, byte| {
        write!(key, "{byte:02x}").expect("a string takes all");
        key
    }))
}

/// The canonical JSON of a document, from which its key is made.
pub fn canonical(document: &Value) -> Result<String, Error> {
    let mut json = String::new();
    value(&mut json, document, 0)?;
    Ok(json)
}

/// `depth`: how many arrays and objects it is in.
fn value(json: &mut String, document: &Value, depth: usize) -> Result<(), Error> {
    match document {
        Value::Array(_) | Value::Object(_) if depth == DEPTH_MAX => return Err(Error::Depth),
        Value::Null => json.push_str("null"),
        Value::Bool(truth) => json.push_str(if *truth { "true" } else { "false" }),
        Value::Number(it) => number(json, &it.to_string())?,
        Value::String(text) => string(json, text)?,
        Value::Array(values) => {
            json.push('[');
            for (place, inner) in values.iter().enumerate() {
                separate(json, place);
                value(json, inner, depth + 1)?;
            }
            json.push(']');
        }
        Value::Object(members) => {
            // UTF-8 sorts as code points do.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            json.push('{');
            for (place, (name, inner)) in members.into_iter().enumerate() {
                separate(json, place);
                string(json, name)?;
                json.push(':');
                value(json, inner, depth + 1)?;
            }
            json.push('}');
        }
    }
    Ok(())
}

fn separate(json: &mut String, place: usize) {
    if place > 0 {
        json.push(',');
    }
}

/// PostgreSQL, Python and serde_json escape the same characters in the same way.
fn string(json: &mut String, text: &str) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::Nul);
    }
    json.push_str(&serde_json::to_string(text).expect("any text is a JSON string"));
    Ok(())
}

/// Writes a JSON number as `numeric` prints it: without exponent, with as many decimals as its text gives it.
fn number(json: &mut String, text: &str) -> Result<(), Error> {
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", text), |unsigned| ("-", unsigned));
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| Error::Number)?),
        None => (unsigned, 0),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{whole}{decimals}");
    // How many of the digits stand after the point; below zero: how many are missing before it.
    let after = i64::try_from(decimals.len()).map_err(|_| Error::Number)? - i64::from(exponent);
    let zeros = usize::try_from(-after).unwrap_or(0);
    let after = usize::try_from(after).unwrap_or(0);
    if after > DECIMALS_MAX || zeros > DIGITS_MAX && digits.bytes().any(|digit| digit != b'0') {
        return Err(Error::Number);
    }
    if zeros <= DIGITS_MAX {
        digits.push_str(&"0".repeat(zeros));
    }
    if digits.len() <= after {
        digits.insert_str(0, &"0".repeat(after + 1 - digits.len()));
    }
    let (whole, decimals) = digits.split_at(digits.len() - after);
    let whole = whole.trim_start_matches('0');
    if whole.len() > DIGITS_MAX {
        return Err(Error::Number);
    }
    // It knows no negative zero.
    if digits.bytes().any(|digit| digit != b'0') {
        json.push_str(sign);
    }
    json.push_str(if whole.is_empty() { "0" } else { whole });
    if after > 0 {
        json.push('.');
        json.push_str(decimals);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What Python makes of the same documents; `tests/idempotency/vectors.py` wrote it.
    const VECTORS: &str = include_str!("../tests/idempotency/vectors.jsonl");

    #[test]
    fn keys_are_those_of_python() {
        let mut seen = 0;
        for line in VECTORS.lines() {
            let vector: Value = serde_json::from_str(line).expect("JSON");
            let text = |name: &str| vector[name].as_str().expect("a string");
            let document: Value = serde_json::from_str(text("document")).expect("JSON");
            // Such an integer has become a float by now.
            if vector["beyond_64_bits"] == true {
                continue;
            }
            assert_eq!(canonical(&document).expect("it has a form"), text("canonical"));
            assert_eq!(key(&document).expect("it has a key"), text("key"), "{}", text("document"));
            seen += 1;
        }
        assert!(seen > 25);
    }

    #[test]
    fn numbers_are_as_numeric_prints_them() {
        for (text, printed) in [
            ("1e16", "10000000000000000"),
            ("1.5e-7", "0.00000015"),
            ("-0.0", "0.0"),
            ("-0", "0"),
            ("1.50e1", "15.0"),
            ("12.5E-1", "1.25"),
            ("0e5", "0"),
            ("0e999999", "0"),
            ("0.0e-3", "0.0000"),
            ("-1.10", "-1.10"),
            ("1.25e1", "12.5"),
            ("1.25e+2", "125"),
            ("123e-5", "0.00123"),
        ] {
            let mut json = String::new();
            number(&mut json, text).expect("it has a form");
            assert_eq!(json, printed, "{text}");
        }
        for text in ["1e131072", "1e-16384", "1e99999999999"] {
            assert_eq!(number(&mut String::new(), text), Err(Error::Number), "{text}");
        }
        let mut longest = String::new();
        number(&mut longest, "1e131071").expect("it has a form");
        assert_eq!(longest.len(), DIGITS_MAX);
    }

    #[test]
    fn a_long_decimal_is_the_nearest_float() {
        for text in ["16E58", "1.7976931348623157e308", "0.6000000000000001"] {
            let canonical = canonical(&serde_json::from_str(text).expect("JSON")).expect("it has a form");
            assert_eq!(canonical.parse(), text.parse::<f64>(), "{text}");
        }
    }

    #[test]
    fn what_the_database_refuses_has_no_key() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(key(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(key(&nested(DEPTH_MAX + 1)), Err(Error::Depth));
        assert_eq!(key(&json!({"a\0": 1})), Err(Error::Nul));
    }
}
