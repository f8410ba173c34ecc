//! Reads fixed-width fields from bytes that nobody vouches for: every read checks what remains and never panics.

/// Bytes that end, or break off, in the wrong place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the message ends at byte {offset}, where {expected} more were expected")]
    Short { offset: usize, expected: usize },
    #[error("the text that starts at byte {offset} has no end")]
    Unterminated { offset: usize },
    #[error("the text that starts at byte {offset} is no UTF-8")]
    Utf8 { offset: usize },
    #[error("byte {offset} is {value:#04x}, which is no {what}")]
    Unknown { offset: usize, value: u8, what: &'static str },
    #[error("the length at byte {offset} is negative")]
    NegativeLength { offset: usize },
}

/// A cursor over one message.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, offset: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.offset..]
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let taken = self.rest().get(..len).ok_or(WireError::Short { offset: self.bytes.len(), expected: len })?;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("take returned N bytes"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    /// A length that the wire holds as a signed number.
    pub(super) fn length(&mut self) -> Result<usize, WireError> {
        let offset = self.offset;
        usize::try_from(self.i32()?).map_err(|_| WireError::NegativeLength { offset })
    }

    /// A text that a zero byte ends.
    pub(super) fn text(&mut self) -> Result<&'a str, WireError> {
        let offset = self.offset;
        let len = self.rest().iter().position(|&b| b == 0).ok_or(WireError::Unterminated { offset })?;
        let text = self.take(len)?;
        self.offset += 1;
        std::str::from_utf8(text).map_err(|_| WireError::Utf8 { offset })
    }
}
