//! The few bytes of a frame or status that oracle and saboteurs look at, without the decoder under test.

/// What kind of frame it is, and the position that it ends at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Begin { commit_lsn: u64 },
    Commit { end_lsn: u64 },
    Keepalive { wal_end: u64, asks: bool },
    Other,
}

/// Offset of the message in an XLogData frame.
const MESSAGE: usize = 25;

pub(crate) fn frame(frame: &[u8]) -> Seen {
    match (frame[0], frame.get(MESSAGE)) {
        (b'k', _) => Seen::Keepalive { wal_end: position(&frame[1..9]), asks: frame[17] == 1 },
        (b'w', Some(b'B')) => Seen::Begin { commit_lsn: position(&frame[MESSAGE + 1..MESSAGE + 9]) },
        (b'w', Some(b'C')) => Seen::Commit { end_lsn: position(&frame[MESSAGE + 10..MESSAGE + 18]) },
        _ => Seen::Other,
    }
}

/// The flushed position of a status: what it confirms.
pub(crate) fn confirmed_by(status: &[u8; 34]) -> u64 {
    position(&status[9..17])
}

/// Whether a status asks for a keepalive.
pub(crate) fn asks(status: &[u8; 34]) -> bool {
    status[33] == 1
}

fn position(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes were cut out"))
}
