//! Positions in the write-ahead log.

use std::{fmt, num::ParseIntError, str::FromStr};

/// A byte position in the write-ahead log, as PostgreSQL prints it: two hexadecimal halves, `16/B374D848`.
///
/// No arithmetic is offered that could be confirmed: a position is only ever one that the server named (G1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// `0/0`, which PostgreSQL reserves for "none".
    pub const INVALID: Lsn = Lsn(0);

    /// Bytes of log from `earlier` to this position; 0 when `earlier` is not earlier.
    pub fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// What rows that a slot's log does not have carry as the commit of their position, where the slot's log begins at
    /// this consistent point: below all that it has, and no commit's own, because records are aligned to 8 bytes.
    pub fn of_older_rows(self) -> Lsn {
        Lsn(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

/// A text that is not two hexadecimal halves joined by a slash.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no log position; expected two hexadecimal halves as in 16/B374D848")]
pub struct ParseLsnError {
    text: String,
    source: Option<ParseIntError>,
}

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Lsn, ParseLsnError> {
        let error = |source| ParseLsnError { text: text.to_owned(), source };
        let (high, low) = text.split_once('/').ok_or_else(|| error(None))?;
        let half = |digits: &str| u32::from_str_radix(digits, 16).map_err(|e| error(Some(e)));
        Ok(Lsn(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

/// The one total order of events: the start of the commit record that the event belongs to, then the event's ordinal
/// (from 0) among the outbox events of that transaction.
///
/// As text, 16 and 8 upper-case hexadecimal digits joined by a hyphen, so that comparing texts compares positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Start of the commit record (`final_lsn` of Begin). Not the acknowledgement: that is the commit's `end_lsn`.
    pub commit_lsn: Lsn,
    /// Place in the transaction, from 0.
    pub ordinal: u32,
}

impl Position {
    /// Length of the text form in bytes.
    pub const TEXT_LEN: usize = 25;

    /// The first event of the transaction whose commit record starts here.
    pub fn first_of(commit_lsn: Lsn) -> Position {
        Position { commit_lsn, ordinal: 0 }
    }

    /// The text form, without allocating.
    pub fn text(self) -> [u8; Position::TEXT_LEN] {
        let mut text = [b'-'; Position::TEXT_LEN];
        hex(self.commit_lsn.0, &mut text[..16]);
        hex(u64::from(self.ordinal), &mut text[17..]);
        text
    }
}

fn hex(mut value: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789ABCDEF"[(value & 0xF) as usize];
        value >>= 4;
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}-{:08X}", self.commit_lsn.0, self.ordinal)
    }
}

/// A text that is not 16 and 8 hexadecimal digits joined by a hyphen.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no position; expected hexadecimal digits as in 00000016B374D848-0000001A")]
pub struct ParsePositionError(String);

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Position, ParsePositionError> {
        let parts = text.split_once('-').filter(|(commit, ordinal)| commit.len() == 16 && ordinal.len() == 8);
        let parse = |(commit, ordinal): (&str, &str)| {
            let commit_lsn = Lsn(u64::from_str_radix(commit, 16).ok()?);
            Some(Position { commit_lsn, ordinal: u32::from_str_radix(ordinal, 16).ok()? })
        };
        parts.and_then(parse).ok_or_else(|| ParsePositionError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_text_round_trips() {
        for text in ["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"] {
            assert_eq!(text.parse::<Lsn>().unwrap().to_string(), text);
        }
        for text in ["", "0", "0/", "/0", "1/G", "1/100000000", "1/2/3"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }

    #[test]
    fn position_text_sorts_as_the_position() {
        let at = |lsn, ordinal| Position { commit_lsn: Lsn(lsn), ordinal };
        let ordered = [at(9, 0), at(9, 1), at(9, 10), at(0xA0, 0), at(u64::MAX, u32::MAX)];
        assert!(ordered.is_sorted());
        assert!(ordered.map(Position::text).is_sorted());
        assert_eq!(at(0x16_B374_D848, 26).to_string(), "00000016B374D848-0000001A");
        assert_eq!(at(0x16_B374_D848, 26).text(), *b"00000016B374D848-0000001A");
        assert_eq!("00000016B374D848-0000001A".parse(), Ok(at(0x16_B374_D848, 26)));
        for text in ["", "16/B374D848", "00000016B374D848-1A", "00000016B374D848-0000001G"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }
}
