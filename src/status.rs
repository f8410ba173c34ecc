//! What a running walpost knows of itself. The session and the supervisor write it; HTTP and logs read it.

mod latency;
mod recent;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use prometheus_client::metrics::histogram::Histogram;
use serde::Serialize;

use crate::{
    pipeline::{Lsn, PgTime, Ticket},
    postgres::{bookmark::Bookmark, unproven::Unproven},
    traces::Traces,
};

pub use latency::{Counts, Latency};
pub use recent::{LastRecords, RECORDS_MAX, Recent, Recents};

/// An older sample of the server says nothing of now.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(30);
/// What is not proven is asked for every thirty seconds.
const UNPROVEN_AGE_MAX: Duration = Duration::from_secs(90);
/// Most names that a [`Totals`] tells apart.
const NAMES_MAX: usize = 200;

/// Shared between the one task that streams and those that show.
#[derive(Debug)]
pub struct Status {
    now: Mutex<Now>,
    /// Seconds from a transaction's commit to the delivery of its last record.
    pub commit_to_delivery: Histogram,
    /// The same, for percentiles.
    pub latency: Latency,
    /// What was delivered last.
    pub last_records: LastRecords,
    /// Events of each transaction that is delivered.
    pub transaction_events: Histogram,
    /// Where spans go; none: nowhere.
    pub traces: Option<Traces>,
}

/// The values of one moment.
#[derive(Clone, Debug)]
pub struct Now {
    pub state: State,
    /// Why it is not streaming, or what holds it up; none while all is well.
    pub reason: Option<String>,
    /// When `state` was entered.
    pub since: SystemTime,
    /// The position reported as delivered; none before the first session.
    pub confirmed: Option<Lsn>,
    /// Records and bytes sent and not acknowledged.
    pub in_flight_records: usize,
    pub in_flight_bytes: usize,
    /// Records that the sink has and has not begun to deliver, or knows no fate of.
    pub queued_records: usize,
    /// The record that has been in flight longest, and since when it is that one; none while nothing is.
    oldest: Option<(Ticket, SystemTime)>,
    /// When the session's loop last came round.
    turned: SystemTime,
    /// What was committed by then is proven published, but for what is older than the slot; none: nothing is.
    pub published_at: Option<SystemTime>,
    /// What was not proven published when it was last asked, and when that was.
    pub unproven: Option<(Unproven, SystemTime)>,
    /// Commit time of the oldest transaction that is not confirmed, as far as it was received.
    pub oldest_unconfirmed: Option<PgTime>,
    /// Events decoded, by table.
    pub events: BTreeMap<String, u64>,
    /// Records delivered, by topic.
    pub delivered: Totals,
    /// Events put among the dead letters, by the reason's word.
    pub dead_letters: BTreeMap<&'static str, u64>,
    /// Events and aggregates that are parked now; none where the stream halts at poison.
    pub parked: Option<(u64, u64)>,
    /// Events whose `occurred_at` could not stamp their record.
    pub timestamps_replaced: u64,
    /// Sessions that ended in trouble.
    pub reconnects: u64,
    /// Records that were sent again, since the sink did not take them for the time being.
    pub retries: u64,
    /// Errors that Kafka's client told of, by their names.
    pub kafka_errors: BTreeMap<&'static str, u64>,
    /// When the server was last told of the confirmed position; none before.
    pub fed_back: Option<SystemTime>,
    /// What this process has pruned, by table.
    pub pruned: BTreeMap<String, Pruned>,
    /// Slots that were found lost, and those whose unpublished rows were all sent.
    pub slot_losses: u64,
    pub slot_recoveries: u64,
    /// An outbox whose events the publication leaves out, and what mends it.
    pub unpublished: Option<String>,
    /// Rows that are sent before the stream; none while the stream is.
    pub reading: Option<Reading>,
    /// When the last transaction was committed that is delivered whole.
    pub last_commit: Option<PgTime>,
    /// The cluster that the records go to; none before a session has met it.
    pub kafka_cluster_id: Option<String>,
    /// What the server last said of itself, and when.
    pub server: Option<ServerSample>,
}

/// How far a reading of the tables is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// `initial` or `recovery`.
    pub kind: &'static str,
    /// Rows that are sent.
    pub rows: u64,
    /// Rows that there are, as far as the server knows; none: it does not.
    pub rows_estimated: Option<u64>,
}

/// What a process has pruned of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub rows: u64,
    /// When it last came to its end.
    pub finished: Option<SystemTime>,
    /// Times that it could not.
    pub failures: u64,
    /// Blocks read of those that the table has; none while nothing is pruned.
    pub walk: Option<(u64, u64)>,
}

/// A number for each name. Names beyond the first 200 share one, that templates with an identity in the topic do not
/// flood whoever collects the metrics.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Totals(BTreeMap<String, u64>);

/// What walpost is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum State {
    /// Connecting, or waiting to connect again.
    Connecting,
    /// Another process has the slot.
    Standby,
    /// Making the slot, for which the server may wait long.
    Preparing,
    /// The slot cannot give what it held.
    SlotLost,
    Streaming,
    /// Asked to read no more; the slot is kept.
    Paused,
    /// Asked to give the slot up.
    Stopped,
    /// Delivering what is in flight before the end.
    Stopping,
}

impl State {
    pub const ALL: [State; 8] = [
        State::Connecting,
        State::Standby,
        State::Preparing,
        State::SlotLost,
        State::Streaming,
        State::Paused,
        State::Stopped,
        State::Stopping,
    ];

    /// As JSON and metrics have it.
    pub fn word(self) -> &'static str {
        match self {
            State::Connecting => "connecting",
            State::Standby => "standby",
            State::Preparing => "preparing",
            State::SlotLost => "slot_lost",
            State::Streaming => "streaming",
            State::Paused => "paused",
            State::Stopped => "stopped",
            State::Stopping => "stopping",
        }
    }

    /// Whether there is a stream.
    fn is_attached(self) -> bool {
        match self {
            State::Connecting | State::Standby | State::Preparing | State::SlotLost | State::Stopped => false,
            State::Streaming | State::Paused | State::Stopping => true,
        }
    }
}

impl From<State> for &'static str {
    fn from(state: State) -> &'static str {
        state.word()
    }
}

/// The server's side of the slot.
#[derive(Clone, Debug)]
pub struct ServerSample {
    pub taken: SystemTime,
    /// End of the server's log.
    pub wal: Lsn,
    /// Bytes of log that the slot keeps.
    pub retained_bytes: u64,
    /// Bytes that may still be written before the slot is lost; none without such a limit.
    pub safe_bytes: Option<u64>,
    /// When that is at the present rate; none while the slot does not lose ground.
    pub lost_in: Option<Duration>,
    /// The slot's `wal_status`.
    pub wal_status: Option<String>,
    /// The oldest position first.
    pub bookmarks: Vec<Bookmark>,
}

impl Status {
    pub fn new() -> Status {
        let seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
        let now = Now {
            state: State::Connecting,
            reason: Some("starting".to_owned()),
            since: SystemTime::now(),
            confirmed: None,
            in_flight_records: 0,
            in_flight_bytes: 0,
            queued_records: 0,
            oldest: None,
            turned: SystemTime::now(),
            published_at: None,
            unproven: None,
            oldest_unconfirmed: None,
            events: BTreeMap::new(),
            delivered: Totals::default(),
            dead_letters: BTreeMap::new(),
            parked: None,
            timestamps_replaced: 0,
            reconnects: 0,
            retries: 0,
            kafka_errors: BTreeMap::new(),
            fed_back: None,
            pruned: BTreeMap::new(),
            slot_losses: 0,
            slot_recoveries: 0,
            unpublished: None,
            reading: None,
            last_commit: None,
            kafka_cluster_id: None,
            server: None,
        };
        let events = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3, 1e4, 1e5, 1e6];
        Status {
            now: Mutex::new(now),
            commit_to_delivery: Histogram::new(seconds),
            transaction_events: Histogram::new(events),
            traces: None,
            latency: Latency::default(),
            last_records: LastRecords::default(),
        }
    }

    /// The values, to read or to write; never held across an await.
    pub fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("nobody panics while holding the status")
    }

    /// Enters a state. What only a stream can know is forgotten outside of one, so that nothing shown is stale.
    pub fn enter(&self, state: State, reason: Option<String>) {
        let mut now = self.now();
        if now.state != state {
            now.since = SystemTime::now();
        }
        if !state.is_attached() {
            now.reading = None;
            now.in_flight_records = 0;
            now.in_flight_bytes = 0;
            now.queued_records = 0;
            now.fed_back = None;
            now.oldest = None;
            now.published_at = None;
            now.unproven = None;
            now.oldest_unconfirmed = None;
            now.unpublished = None;
            now.server = None;
        }
        now.state = state;
        now.reason = reason;
    }
}

impl Default for Status {
    fn default() -> Status {
        Status::new()
    }
}

impl Now {
    /// The session's loop came round, with this record in flight longest.
    pub fn turn(&mut self, oldest: Option<Ticket>, at: SystemTime) {
        self.turned = at;
        if self.oldest.map(|(ticket, _)| ticket) != oldest {
            self.oldest = oldest.map(|ticket| (ticket, at));
        }
    }

    /// How long the loop has not come round.
    pub fn still_for(&self, at: SystemTime) -> Duration {
        age(self.turned, at)
    }

    /// How long at least the oldest record in flight has waited for its acknowledgement; none while nothing is in flight.
    pub fn waiting_for(&self, at: SystemTime) -> Option<Duration> {
        self.oldest.map(|(_, since)| age(since, at))
    }

    /// Whether there is a stream, so that positions are this process's to tell.
    pub fn is_attached(&self) -> bool {
        self.state.is_attached()
    }

    /// Seconds since the commit of the oldest transaction that is not confirmed, 0 when all is. None when it cannot be
    /// known: while not streaming, while paused with nothing received, and when nothing has come from a server that does
    /// not answer.
    pub fn lag_seconds(&self, at: SystemTime) -> Option<f64> {
        match self.oldest_unconfirmed {
            _ if !self.is_attached() => None,
            Some(commit) => Some(seconds_since(commit, at)),
            None if self.state == State::Paused => None,
            None => self.fresh_server(at).map(|_| 0.0),
        }
    }

    /// Bytes of log between the confirmed position and the server's end, as of the last sample.
    pub fn lag_bytes(&self, at: SystemTime) -> Option<u64> {
        Some(self.fresh_server(at)?.wal.bytes_since(self.confirmed?))
    }

    /// What is not proven published, unless that was asked too long ago.
    pub fn fresh_unproven(&self, at: SystemTime) -> Option<&Unproven> {
        self.unproven.as_ref().filter(|(_, asked)| age(*asked, at) <= UNPROVEN_AGE_MAX).map(|(unproven, _)| unproven)
    }

    /// The last sample of the server, unless it is stale.
    pub fn fresh_server(&self, at: SystemTime) -> Option<&ServerSample> {
        self.server.as_ref().filter(|sample| age(sample.taken, at) <= SAMPLE_AGE_MAX)
    }
}

impl Totals {
    /// The name that stands for all beyond the first ones.
    pub const OTHER: &str = "other";

    pub fn add(&mut self, name: &str, more: u64) {
        let name = if self.0.contains_key(name) || self.0.len() < NAMES_MAX { name } else { Totals::OTHER };
        match self.0.get_mut(name) {
            Some(total) => *total += more,
            None => {
                self.0.insert(name.to_owned(), more);
            }
        }
    }

    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// Names and numbers, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, total)| (name.as_str(), *total))
    }
}

/// Time from `then` to `at`; zero when the clock went back meanwhile.
pub fn age(then: SystemTime, at: SystemTime) -> Duration {
    at.duration_since(then).unwrap_or_default()
}

/// Seconds from a commit to `at`; 0 when the clocks disagree about their order.
pub fn seconds_since(commit: PgTime, at: SystemTime) -> f64 {
    (unix_us(at) - commit.unix_us()).max(0) as f64 / 1e6
}

/// Microseconds since 1970.
pub fn unix_us(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn streaming() -> Now {
        let status = Status::new();
        status.enter(State::Streaming, None);
        let mut now = status.now().clone();
        now.confirmed = Some(Lsn(1_000));
        now.server = Some(ServerSample {
            taken: at(100),
            wal: Lsn(1_500),
            retained_bytes: 0,
            safe_bytes: None,
            lost_in: None,
            wal_status: None,
            bookmarks: Vec::new(),
        });
        now
    }

    #[test]
    fn the_oldest_record_waits_until_another_one_is_the_oldest() {
        let mut now = streaming();
        assert_eq!(now.waiting_for(at(100)), None);
        now.turn(Some(Ticket(7)), at(100));
        now.turn(Some(Ticket(7)), at(120));
        assert_eq!(now.waiting_for(at(130)), Some(Duration::from_secs(30)));
        now.turn(Some(Ticket(8)), at(131));
        assert_eq!(now.waiting_for(at(132)), Some(Duration::from_secs(1)));
        assert_eq!(now.still_for(at(141)), Duration::from_secs(10));
        now.turn(None, at(133));
        assert_eq!(now.waiting_for(at(999)), None);
    }

    #[test]
    fn a_clock_that_goes_back_gives_no_absurd_ages() {
        let mut now = streaming();
        now.turn(Some(Ticket(0)), at(100));
        assert_eq!(now.waiting_for(at(50)), Some(Duration::ZERO));
        now.oldest_unconfirmed = Some(PgTime::from_unix_us(100_000_000));
        assert_eq!(now.lag_seconds(at(50)), Some(0.0));
    }

    #[test]
    fn lag_is_told_only_while_it_is_known() {
        let mut now = streaming();
        assert_eq!((now.lag_seconds(at(110)), now.lag_bytes(at(110))), (Some(0.0), Some(500)));
        assert_eq!((now.lag_seconds(at(131)), now.lag_bytes(at(131))), (None, None), "the sample is stale");
        now.oldest_unconfirmed = Some(PgTime::from_unix_us(90_000_000));
        assert_eq!(now.lag_seconds(at(131)), Some(41.0), "what was received is known without a sample");
        now.state = State::Standby;
        assert_eq!(now.lag_seconds(at(110)), None);
    }

    #[test]
    fn what_only_a_stream_knows_is_forgotten_without_one() {
        let status = Status::new();
        *status.now() = streaming();
        status.now().turn(Some(Ticket(0)), at(100));
        status.enter(State::Connecting, Some("the server is gone".to_owned()));
        let now = status.now().clone();
        assert_eq!((now.waiting_for(at(110)), now.lag_bytes(at(110))), (None, None));
        assert!(!now.is_attached() && now.server.is_none());
    }

    #[test]
    fn names_beyond_the_first_ones_share_a_number() {
        let mut totals = Totals::default();
        for topic in 0..NAMES_MAX {
            totals.add(&format!("topic-{topic}"), 1);
        }
        totals.add("a-late-one", 5);
        totals.add("another-late-one", 6);
        totals.add("topic-0", 1);
        assert_eq!(totals.iter().count(), NAMES_MAX + 1);
        assert_eq!(totals.iter().find(|(name, _)| *name == Totals::OTHER), Some((Totals::OTHER, 11)));
        assert_eq!(totals.iter().find(|(name, _)| *name == "topic-0"), Some(("topic-0", 2)));
    }
}
