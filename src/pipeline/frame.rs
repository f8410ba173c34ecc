//! The frames inside CopyBoth: what a walsender sends, and the status update that answers.
//!
//! <https://www.postgresql.org/docs/current/protocol-replication.html>
//!
//! The two positions of XLogData count no payload bytes and are not monotonic: nothing here reads progress from them.

use super::{
    lsn::Lsn,
    wire::{Reader, WireError},
};

/// Microseconds since 2000-01-01 00:00 UTC, PostgreSQL's own epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PgTime(pub i64);

/// 2000-01-01 in microseconds since 1970-01-01.
const PG_EPOCH_UNIX_US: i64 = 946_684_800_000_000;

impl PgTime {
    pub fn from_unix_us(us: i64) -> PgTime {
        PgTime(us.saturating_sub(PG_EPOCH_UNIX_US))
    }

    pub fn unix_us(self) -> i64 {
        self.0.saturating_add(PG_EPOCH_UNIX_US)
    }

    /// Milliseconds since 1970, rounded down, as Kafka stamps records.
    pub fn unix_ms(self) -> i64 {
        self.unix_us().div_euclid(1000)
    }
}

/// One CopyData body from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// `w`: start of the WAL data, the server's WAL end, its clock, then one pgoutput message.
    XLogData { start: Lsn, message: &'a [u8] },
    /// `k`: everything below `wal_end` was sent.
    Keepalive { wal_end: Lsn, reply_requested: bool },
}

impl<'a> Frame<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Frame<'a>, WireError> {
        let mut reader = Reader::new(body);
        match reader.u8()? {
            b'w' => {
                let start = Lsn(reader.u64()?);
                reader.take(8 + 8)?;
                Ok(Frame::XLogData { start, message: reader.rest() })
            }
            b'k' => {
                let wal_end = Lsn(reader.u64()?);
                reader.take(8)?;
                Ok(Frame::Keepalive { wal_end, reply_requested: reader.u8()? != 0 })
            }
            value => Err(WireError::Unknown { offset: 0, value, what: "replication frame" }),
        }
    }
}

/// `r`: what is reported to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Everything below is delivered: the server may forget it (G1).
    pub confirmed: Lsn,
    /// Ask the server for a keepalive, which says how far it has sent.
    pub request_reply: bool,
}

impl StatusUpdate {
    /// The CopyData body: written, flushed and applied positions (one value: what is not delivered counts as not
    /// received), our clock, the request.
    pub fn encode(self, now: PgTime) -> [u8; 34] {
        let mut body = [0; 34];
        body[0] = b'r';
        for field in [1, 9, 17] {
            body[field..field + 8].copy_from_slice(&self.confirmed.0.to_be_bytes());
        }
        body[25..33].copy_from_slice(&now.0.to_be_bytes());
        body[33] = u8::from(self.request_reply);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_as_the_server_sends_them() {
        let mut data = vec![b'w'];
        data.extend([0; 24]);
        data.extend(b"Bxyz");
        assert_eq!(Frame::parse(&data).unwrap(), Frame::XLogData { start: Lsn(0), message: b"Bxyz" });
        assert!(matches!(Frame::parse(&data[..20]), Err(WireError::Short { .. })));

        let mut alive = vec![b'k'];
        alive.extend(0x16_0000_0001_u64.to_be_bytes());
        alive.extend([0; 8]);
        alive.push(1);
        assert_eq!(
            Frame::parse(&alive).unwrap(),
            Frame::Keepalive { wal_end: Lsn(0x16_0000_0001), reply_requested: true }
        );
        assert!(Frame::parse(b"x").is_err());
        assert!(Frame::parse(b"").is_err());
    }

    #[test]
    fn the_status_update_reports_one_position_three_times() {
        let body = StatusUpdate { confirmed: Lsn(0x0102_0304_0506_0708), request_reply: true }.encode(PgTime(1));
        assert_eq!(body[0], b'r');
        for field in [1, 9, 17] {
            assert_eq!(body[field..field + 8], [1, 2, 3, 4, 5, 6, 7, 8]);
        }
        assert_eq!(body[25..], [0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn times_before_1970_round_down() {
        assert_eq!(PgTime::from_unix_us(-1).unix_ms(), -1);
        assert_eq!(PgTime(0).unix_ms(), 946_684_800_000);
    }
}
