//! Java's `.properties` format.
//!
//! [The rules](https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/Properties.html#load(java.io.Reader)):
//! a natural line ends with `\n`, `\r` or both; `#` or `!` begins a comment; an odd number of `\` at the end continues a
//! line, whose leading white space is dropped; the key ends at the first `=`, `:` or white space that is not escaped.

/// A key, its value, and the line that it begins in, from 1.
pub(crate) type Property = (String, String, usize);

/// What stands in a line and means nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) line: usize,
}

/// All properties in their order; of those that are given twice the last counts in Java.
pub(crate) fn parse(text: &str) -> Result<Vec<Property>, Malformed> {
    logical_lines(text)
        .into_iter()
        .map(|(line, text)| property(&text).map(|(key, value)| (key, value, line)).ok_or(Malformed { line }))
        .collect()
}

/// Bytes as Java reads them from a stream: each is a character of Latin-1.
pub(super) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Lines without comments and blank ones, continued ones joined, each with its number.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, natural) in text.split('\n').enumerate() {
        let natural = natural.trim_start_matches(is_blank);
        if open.is_none() && (natural.is_empty() || natural.starts_with(['#', '!'])) {
            continue;
        }
        let (number, mut line) = open.take().unwrap_or((index + 1, String::new()));
        let slashes = natural.len() - natural.trim_end_matches('\\').len();
        if slashes % 2 == 1 {
            line.push_str(&natural[..natural.len() - 1]);
            open = Some((number, line));
        } else {
            line.push_str(natural);
            lines.push((number, line));
        }
    }
    lines.extend(open);
    lines
}

/// The key and the value of a line; none for a malformed `\u`.
fn property(line: &str) -> Option<(String, String)> {
    let mut key_end = line.len();
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '=' | ':' | ' ' | '\t' | '\u{c}' => {
                key_end = at;
                break;
            }
            _ => {}
        }
    }
    let rest = line[key_end..].trim_start_matches(is_blank);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(is_blank);
    Some((unescaped(&line[..key_end])?, unescaped(rest)?))
}

fn unescaped(text: &str) -> Option<String> {
    // UTF-16, because a pair of surrogates is two escapes.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next() {
                Some('u') => {
                    let digits = chars.as_str().get(..4)?;
                    units.push(u16::from_str_radix(digits, 16).ok()?);
                    chars.nth(3)?;
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some(other) => other,
                None => break,
            },
            c => c,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap().into_iter().map(|(key, value, _)| (key, value)).collect()
    }

    #[test]
    fn properties_read_as_java_reads_them() {
        for (text, key, value) in [
            ("a=b", "a", "b"),
            ("  a : b c ", "a", "b c "),
            ("a b", "a", "b"),
            ("a\t= b", "a", "b"),
            ("a", "a", ""),
            ("a=", "a", ""),
            ("=b", "", "b"),
            (r"a\=b\:c\ d = e", "a=b:c d", "e"),
            (r"a=x\ty\\z\q", "a", "x\ty\\zq"),
            (r"a=\u00e4\uD83D\uDE00", "a", "ä😀"),
            ("a=one,\\\n   two", "a", "one,two"),
            ("a=one\\\r\n\t# two", "a", "one# two"),
            ("a=b\\\\", "a", "b\\"),
            ("a=b\\", "a", "b"),
            ("a==b", "a", "=b"),
            ("regex=svc-(.*)", "regex", "svc-(.*)"),
        ] {
            assert_eq!(pairs(text), [(key.to_owned(), value.to_owned())], "{text:?}");
        }
        assert_eq!(parse("# x\n\n ! y\\\n\na=1\rb=2").unwrap().iter().map(|p| p.2).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(parse("a=1\nb=\\u00g0"), Err(Malformed { line: 2 }));
        assert_eq!(latin1(&[0x61, 0xe4]), "aä");
    }
}
