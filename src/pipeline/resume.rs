//! Where an exactly-once stream goes on: what Kafka has already is passed over.
//!
//! The position that was stored beside the records says how far they reach. It means something only in the log that it
//! was taken from, and a restored copy keeps its name. So it is never trusted alone: a stored position that the slot has
//! not passed must be met in the stream, with the same event at it. Until then nothing that is passed over is confirmed.
//! A slot that has passed it is normal (G5): then nothing is left to pass over.

use super::lsn::{Lsn, Position};

/// The last event of a stream that Kafka has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub timeline: u32,
    pub position: Position,
    /// The event's id, as text, or the beginning of it: see [`id_beginning`].
    pub event_id: String,
}

/// Longest event id that is stored whole, in bytes.
pub const ID_BYTES_MAX: usize = 1000;

/// What is stored of an event's id: a record and an index entry must hold it, however long it is. The position alone tells
/// events of one system apart.
pub fn id_beginning(id: &str) -> &str {
    let mut end = id.len().min(ID_BYTES_MAX);
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    &id[..end]
}

/// The log that a session reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub timeline: u32,
    /// The timelines before this one, each with the position at which it was left.
    pub history: Vec<(u32, Lsn)>,
    /// The slot's confirmed position, where the stream starts.
    pub start: Lsn,
    /// How far the log is on the server's disk.
    pub end: Lsn,
}

/// A stored position that does not belong to the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("Kafka has events up to position {stored}, but the server's log ends at {end}: it is an older copy")]
    Ahead { stored: Position, end: Lsn },
    #[error(
        "Kafka has events up to position {stored} of timeline {timeline}, from which this server's timeline {own} does not \
         come: it is another branch, such as a restored copy"
    )]
    OtherBranch { stored: Position, timeline: u32, own: u32 },
    #[error(
        "Kafka has events up to position {stored}, and the log has no event there although the slot has not passed it: it \
         is a restored copy that has gone its own way, or tables or filters of the publication were changed"
    )]
    NotFound { stored: Position },
    #[error(
        "Kafka has event {stored_id} at position {stored}, and the log has event {found_id} there: it is a restored copy \
         that has gone its own way, or tables or filters of the publication were changed"
    )]
    OtherEvent { stored: Position, stored_id: String, found_id: String },
}

/// What is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume(State);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing.
    #[default]
    Clear,
    /// Everything up to the stored event, which must come.
    Until(Stored),
    /// Everything before this place.
    Below(Position),
}

impl Resume {
    /// Judges what was stored by the log as it is now.
    pub fn new(stored: Option<Stored>, log: &Log) -> Result<Resume, Mismatch> {
        let Some(stored) = stored else { return Ok(Resume::default()) };
        let (position, timeline) = (stored.position, stored.timeline);
        let switch = log.history.iter().find(|(left, _)| *left == timeline).map(|(_, at)| *at);
        let state = match switch {
            // What Kafka has beyond the switch to a later timeline happened to a server that is gone.
            Some(switch) if position.commit_lsn >= switch => State::Below(Position::first_of(switch)),
            None if timeline != log.timeline => {
                return Err(Mismatch::OtherBranch { stored: position, timeline, own: log.timeline });
            }
            _ if position.commit_lsn < log.start => State::Clear,
            _ if position.commit_lsn >= log.end => return Err(Mismatch::Ahead { stored: position, end: log.end }),
            _ => State::Until(stored),
        };
        Ok(Resume(state))
    }

    /// Passes over what comes before a place.
    pub fn below(place: Position) -> Resume {
        Resume(State::Below(place))
    }

    /// The switch below which everything is passed over, where Kafka has events from beyond it.
    pub fn cut_at(&self) -> Option<Lsn> {
        match self.0 {
            State::Below(switch) => Some(switch.commit_lsn),
            State::Clear | State::Until(_) => None,
        }
    }

    /// The stored position has not been met: nothing may be confirmed.
    pub fn is_pending(&self) -> bool {
        matches!(self.0, State::Until(_))
    }

    /// Whether the event at a position is to be sent. `id` is asked for where it decides.
    pub(super) fn admits(&mut self, position: Position, id: impl FnOnce() -> String) -> Result<bool, Mismatch> {
        match &self.0 {
            State::Clear => return Ok(true),
            State::Below(place) if position < *place => return Ok(false),
            State::Below(_) => {}
            State::Until(stored) if position < stored.position => return Ok(false),
            State::Until(stored) if position > stored.position => {
                return Err(Mismatch::NotFound { stored: stored.position });
            }
            State::Until(stored) => {
                let found_id = id();
                if id_beginning(&found_id) != id_beginning(&stored.event_id) {
                    let (stored, stored_id) = (stored.position, stored.event_id.clone());
                    return Err(Mismatch::OtherEvent { stored, stored_id, found_id });
                }
                self.0 = State::Clear;
                return Ok(false);
            }
        }
        self.0 = State::Clear;
        Ok(true)
    }

    /// The server has sent everything that commits below `reached`.
    pub(super) fn passed(&self, reached: Lsn) -> Result<(), Mismatch> {
        match &self.0 {
            State::Until(Stored { position, .. }) if reached > position.commit_lsn => {
                Err(Mismatch::NotFound { stored: *position })
            }
            State::Until(_) | State::Clear | State::Below(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(commit: u64, ordinal: u32) -> Position {
        Position { commit_lsn: Lsn(commit), ordinal }
    }

    fn stored(timeline: u32, commit: u64, ordinal: u32) -> Stored {
        Stored { timeline, position: at(commit, ordinal), event_id: "e".to_owned() }
    }

    fn log() -> Log {
        Log { timeline: 3, history: vec![(1, Lsn(50)), (2, Lsn(150))], start: Lsn(100), end: Lsn(300) }
    }

    fn admits(resume: &mut Resume, commit: u64, ordinal: u32, id: &str) -> Result<bool, Mismatch> {
        resume.admits(at(commit, ordinal), || id.to_owned())
    }

    #[test]
    fn everything_up_to_the_stored_event_is_passed_over() {
        let mut resume = Resume::new(Some(stored(3, 200, 1)), &log()).unwrap();
        assert_eq!(admits(&mut resume, 180, 7, "a"), Ok(false));
        assert_eq!(admits(&mut resume, 200, 0, "b"), Ok(false));
        assert!(resume.is_pending());
        assert_eq!(admits(&mut resume, 200, 1, "e"), Ok(false));
        assert!(!resume.is_pending());
        assert_eq!(admits(&mut resume, 200, 2, "f"), Ok(true));
    }

    #[test]
    fn a_slot_that_has_passed_it_leaves_nothing_to_pass_over() {
        let mut resume = Resume::new(Some(stored(3, 99, 1)), &log()).unwrap();
        assert!(!resume.is_pending());
        assert_eq!(admits(&mut resume, 100, 0, "a"), Ok(true));
        assert_eq!(Resume::new(None, &log()).unwrap(), Resume::default());
    }

    #[test]
    fn a_position_that_is_not_met_is_an_error_and_never_a_guess() {
        let pending = || Resume::new(Some(stored(3, 200, 1)), &log()).unwrap();
        let not_found = Mismatch::NotFound { stored: at(200, 1) };
        assert_eq!(admits(&mut pending(), 200, 2, "g"), Err(not_found.clone()));
        assert_eq!(admits(&mut pending(), 201, 0, "g"), Err(not_found.clone()));
        assert_eq!(pending().passed(Lsn(201)), Err(not_found));
        assert_eq!(pending().passed(Lsn(200)), Ok(()));
        assert!(matches!(admits(&mut pending(), 200, 1, "other"), Err(Mismatch::OtherEvent { .. })));
    }

    #[test]
    fn another_log_is_told_by_its_end_or_its_branch() {
        assert!(matches!(Resume::new(Some(stored(3, 300, 0)), &log()), Err(Mismatch::Ahead { .. })));
        assert!(matches!(Resume::new(Some(stored(4, 200, 0)), &log()), Err(Mismatch::OtherBranch { .. })));
    }

    #[test]
    fn positions_of_an_earlier_timeline_count_up_to_the_switch() {
        let mut resume = Resume::new(Some(stored(2, 149, 0)), &log()).unwrap();
        assert!(resume.is_pending() && resume.cut_at().is_none());
        assert_eq!(admits(&mut resume, 149, 0, "e"), Ok(false));

        let mut phantom = Resume::new(Some(stored(2, 150, 0)), &log()).unwrap();
        assert_eq!((phantom.is_pending(), phantom.cut_at()), (false, Some(Lsn(150))));
        assert_eq!(admits(&mut phantom, 149, 3, "a"), Ok(false));
        assert_eq!(admits(&mut phantom, 150, 0, "b"), Ok(true));
    }
}
