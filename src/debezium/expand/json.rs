//! JSON as Jackson's `ObjectMapper` reads it: strictly, the last of doubled members wins in the place of the first, and
//! what follows the value does not count.

use std::collections::HashMap;

/// Jackson's `StreamReadConstraints`: deeper documents, longer numbers and names are refused.
const DEPTH_MAX: usize = 1_000;
const NUMBER_LENGTH_MAX: usize = 1_000;
const NAME_LENGTH_MAX: usize = 50_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Boolean(bool),
    Int32(i32),
    Int64(i64),
    /// An integer beyond 64 bits.
    BigInteger,
    Double(f64),
    String(String),
    Array(Vec<Json>),
    /// Names are unique.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The value at the beginning of the text; None if it is none.
    pub fn parse(text: &str) -> Option<Json> {
        Parser { text, at: 0, depth: 0 }.value()
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn value(&mut self) -> Option<Json> {
        self.skip_blanks();
        match self.peek()? {
            b'{' => self.nested(Parser::object),
            b'[' => self.nested(Parser::array),
            b'"' => self.string().map(Json::String),
            b't' => self.literal("true", Json::Boolean(true)),
            b'f' => self.literal("false", Json::Boolean(false)),
            b'n' => self.literal("null", Json::Null),
            _ => self.number(),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Option<Json>) -> Option<Json> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Option<Json> {
        let mut members = Vec::new();
        self.skip_blanks();
        if self.take(b'}') {
            return Some(Json::Object(members));
        }
        loop {
            self.skip_blanks();
            let name = self.string().filter(|name| name.len() <= NAME_LENGTH_MAX)?;
            self.skip_blanks();
            if !self.take(b':') {
                return None;
            }
            members.push((name, self.value()?));
            if !self.more(b'}')? {
                return Some(Json::Object(unique(members)));
            }
        }
    }

    fn array(&mut self) -> Option<Json> {
        let mut elements = Vec::new();
        self.skip_blanks();
        if self.take(b']') {
            return Some(Json::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            if !self.more(b']')? {
                return Some(Json::Array(elements));
            }
        }
    }

    /// Whether a comma follows, not the end.
    fn more(&mut self, end: u8) -> Option<bool> {
        self.skip_blanks();
        if self.take(b',') {
            Some(true)
        } else if self.take(end) {
            Some(false)
        } else {
            None
        }
    }

    fn string(&mut self) -> Option<String> {
        if !self.take(b'"') {
            return None;
        }
        let mut string = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
            string.push_str(&rest[..plain]);
            self.at += plain;
            match self.next()? {
                b'"' => return Some(string),
                b'\\' => string.push(self.escaped()?),
                _ => return None,
            }
        }
    }

    /// Half a surrogate pair is no character, although Java would let it pass.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.next()? {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            c @ (b'"' | b'\\' | b'/') => char::from(c),
            b'u' => {
                let unit = self.hex_unit()?;
                let mut units = vec![unit];
                if (0xd800..0xdc00).contains(&unit) && self.take(b'\\') && self.take(b'u') {
                    units.push(self.hex_unit()?);
                }
                match String::from_utf16(&units).ok()?.chars().collect::<Vec<_>>()[..] {
                    [c] => c,
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    fn hex_unit(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        let all_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        if all_hex { u16::from_str_radix(digits, 16).ok() } else { None }
    }

    fn number(&mut self) -> Option<Json> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        } else if self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return None;
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let number = &self.text[start..self.at];
        if number.len() > NUMBER_LENGTH_MAX {
            return None;
        }
        Some(match (integer, number.parse::<i64>()) {
            (true, Ok(number)) => i32::try_from(number).map_or(Json::Int64(number), Json::Int32),
            (true, Err(_)) => Json::BigInteger,
            (false, _) => Json::Double(number.parse().ok()?),
        })
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Some(()) } else { None }
    }

    fn literal(&mut self, literal: &str, value: Json) -> Option<Json> {
        let found = self.text[self.at..].starts_with(literal);
        self.at += literal.len();
        if found { Some(value) } else { None }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

fn unique(members: Vec<(String, Json)>) -> Vec<(String, Json)> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(members.len());
    let mut unique: Vec<(String, Json)> = Vec::with_capacity(members.len());
    for (name, value) in members {
        match places.get(&name) {
            Some(&place) => unique[place].1 = value,
            None => {
                places.insert(name.clone(), unique.len());
                unique.push((name, value));
            }
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_least_type() {
        let Some(Json::Array(numbers)) = Json::parse(
            "[-0, 2147483648, 9223372036854775808, 1.10, 0.1e1, 1E+2, -0.0, 12345678901234567890.123456789]",
        ) else {
            panic!("no array");
        };
        let doubles = [1.1, 1.0, 100.0, -0.0, 1.2345678901234567e19].map(Json::Double);
        let integers = [Json::Int32(0), Json::Int64(2_147_483_648), Json::BigInteger];
        assert_eq!(numbers, [&integers[..], &doubles[..]].concat());
    }

    #[test]
    fn the_last_of_doubled_members_wins() {
        let members = vec![("a".to_owned(), Json::Int32(3)), ("b".to_owned(), Json::Int32(2))];
        assert_eq!(Json::parse(r#"{"a":1,"b":2,"a":3} trailing"#), Some(Json::Object(members)));
    }

    #[test]
    fn strings_are_unescaped() {
        let text = r#"["h\u00e9 \ud83d\ude00 日本\"\\\/\b\f\n\r\t"]"#;
        let string = "h\u{e9} 😀 日本\"\\/\u{8}\u{c}\n\r\t".to_owned();
        assert_eq!(Json::parse(text), Some(Json::Array(vec![Json::String(string)])));
    }

    #[test]
    fn what_is_no_json_is_none() {
        for text in [
            "{bad json}",
            r#"{"a":NaN}"#,
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":.5}"#,
            r#"{"a":+1}"#,
            r#"{"a":1,}"#,
            "[1,]",
            "[1 2]",
            "[-]",
            "[1e]",
            "[tru]",
            "{'a':1}",
            "[\"a\nb\"]",
            r#"["\x"]"#,
            r#"["\u12"]"#,
            r#"["\ud83d"]"#,
            "[",
            r#"{"a""#,
            "",
        ] {
            assert_eq!(Json::parse(text), None, "{text}");
        }
    }

    #[test]
    fn limits_are_jacksons() {
        let nested = |depth| ["[".repeat(depth), "]".repeat(depth)].concat();
        assert!(Json::parse(&nested(1_000)).is_some());
        assert_eq!(Json::parse(&nested(1_001)), None);
        assert_eq!(Json::parse(&format!("[{}]", "1".repeat(1_000))), Some(Json::Array(vec![Json::BigInteger])));
        assert_eq!(Json::parse(&format!("[{}]", "1".repeat(1_001))), None);
    }
}
