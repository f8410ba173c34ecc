//! COPY's text format: lines, and what is in them.
//!
//! <https://www.postgresql.org/docs/current/sql-copy.html>. Fields are parted by tabs and end with a newline; `\N` is
//! NULL; backslash, tab, newline and a few more are written with a backslash. The server may cut the bytes anywhere.

use bytes::BytesMut;

/// A line that COPY would not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Bytes as they come, taken line by line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: BytesMut,
    /// No newline is before it.
    searched: usize,
    /// The line that was taken last.
    taken: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.drop_taken();
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that are not taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next line, without its end.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        self.drop_taken();
        match self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') {
            Some(found) => {
                let end = self.searched + found;
                self.taken = end + 1;
                self.searched = 0;
                Some(&self.bytes[..end])
            }
            None => {
                self.searched = self.bytes.len();
                None
            }
        }
    }

    fn drop_taken(&mut self) {
        bytes::Buf::advance(&mut self.bytes, std::mem::take(&mut self.taken));
    }
}

/// Makes the Insert message of a line with so many columns of the stream and, behind them, values of the order.
pub(super) fn insert(
    line: &[u8],
    relation: u32,
    columns: usize,
    keys: usize,
    message: &mut Vec<u8>,
    key: &mut Vec<Option<String>>,
) -> Result<(), Malformed> {
    message.push(b'I');
    message.extend(relation.to_be_bytes());
    message.push(b'N');
    message.extend(u16::try_from(columns).map_err(|_| Malformed)?.to_be_bytes());
    // A line without fields is one of a single empty one, which no table of ours has.
    let mut fields = line.split(|byte| *byte == b'\t');
    for _ in 0..columns {
        let field = fields.next().ok_or(Malformed)?;
        if field == b"\\N" {
            message.push(b'n');
            continue;
        }
        message.push(b't');
        let length_at = message.len();
        message.extend([0; 4]);
        unescape(field, message)?;
        let length = i32::try_from(message.len() - length_at - 4).map_err(|_| Malformed)?;
        message[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    }
    key.clear();
    for _ in 0..keys {
        let field = fields.next().ok_or(Malformed)?;
        let value = match field {
            b"\\N" => None,
            field => {
                let mut text = Vec::with_capacity(field.len());
                unescape(field, &mut text)?;
                Some(String::from_utf8(text).map_err(|_| Malformed)?)
            }
        };
        key.push(value);
    }
    if fields.next().is_some() { Err(Malformed) } else { Ok(()) }
}

fn unescape(mut field: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    while let Some(at) = field.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&field[..at]);
        out.push(match field.get(at + 1).ok_or(Malformed)? {
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0B,
            other => *other,
        });
        field = &field[at + 2..];
    }
    out.extend_from_slice(field);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::pgoutput::{Message, RelationId, Value};

    fn values(line: &[u8], columns: usize) -> (Vec<Option<Vec<u8>>>, Vec<Option<String>>) {
        let (mut message, mut key) = (Vec::new(), Vec::new());
        let keys = line.split(|byte| *byte == b'\t').count() - columns;
        insert(line, 7, columns, keys, &mut message, &mut key).unwrap();
        let Ok(Message::Insert { relation: RelationId(7), new }) = Message::parse(&message) else {
            panic!("no insert: {message:?}")
        };
        let mut values = Vec::new();
        new.read(|_, value| {
            values.push(match value {
                Value::Text(text) => Some(text.to_vec()),
                Value::Null => None,
                Value::Unchanged => panic!("COPY leaves nothing out"),
            });
        })
        .unwrap();
        (values, key)
    }

    #[test]
    fn a_line_becomes_the_insert_that_the_stream_has() {
        let (found, key) = values(b"a\\tb\\\\c\\nd\\r\\b\\f\\v\t\\N\t\t\\\\N\t42\t\\N", 4);
        let text = |text: &[u8]| Some(text.to_vec());
        assert_eq!(found, [text(b"a\tb\\c\nd\r\x08\x0C\x0B"), None, text(b""), text(b"\\N")]);
        assert_eq!(key, [Some("42".to_owned()), None]);
    }

    #[test]
    fn what_copy_would_not_send_is_malformed() {
        let parse = |line: &[u8], columns, keys| insert(line, 7, columns, keys, &mut Vec::new(), &mut Vec::new());
        assert_eq!(parse(b"a\tb", 2, 0), Ok(()));
        assert_eq!(parse(b"a\tb", 1, 0), Err(Malformed), "a field too many");
        assert_eq!(parse(b"a\tb", 2, 1), Err(Malformed), "a field too few");
        assert_eq!(parse(b"a\\", 1, 0), Err(Malformed), "an escape of nothing");
    }

    #[test]
    fn lines_come_whole_however_the_bytes_are_cut() {
        let text = b"one\ntwo\\nlines\n\nlast\n";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for part in text.chunks(size) {
                lines.push(part);
                while let Some(line) = lines.next() {
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["one", "two\\nlines", "", "last"]);
            assert!(lines.is_empty());
        }
    }
}
