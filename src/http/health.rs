//! Whether all is well, and why not.
//!
//! *Alive* asks for a restart when it fails, so it fails only for what a restart mends: a loop that does not turn.
//! *Ready* is what alerts are for: it fails for everything that keeps events from moving.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::Facts;
use crate::status::{Now, State, age};

/// Kafka's acknowledgement of a record takes less in any case that needs no human.
const WAITING_MAX: Duration = Duration::from_secs(30);
/// The server is asked every few seconds; an answer this old means that it does not answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Yes without reasons, or no with them. The state's own reason stands beside either.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    ok: bool,
    state: State,
    reasons: Vec<String>,
}

impl Verdict {
    pub(super) fn is_good(&self) -> bool {
        self.ok
    }
}

/// The process lives, or this would not be asked: what remains is the session's loop.
pub(super) fn alive(now: &Now, facts: &Facts, at: SystemTime) -> Verdict {
    let still = now.still_for(at);
    match now.state {
        State::Streaming | State::Paused if still > facts.turn_max => {
            let reason = format!("the session's loop has not come round for {} s", still.as_secs());
            Verdict { ok: false, state: now.state, reasons: vec![reason] }
        }
        State::Connecting
        | State::Standby
        | State::SlotLost
        | State::Preparing
        | State::Streaming
        | State::Paused
        | State::Stopped
        | State::Stopping => Verdict { ok: true, state: now.state, reasons: Vec::new() },
    }
}

/// Events move, or another process moves them and this one waits for it.
pub(super) fn ready(now: &Now, at: SystemTime) -> Verdict {
    let mut reasons = Vec::from_iter(now.reason.clone());
    let ok = match now.state {
        State::Connecting | State::SlotLost | State::Preparing | State::Paused | State::Stopped | State::Stopping => {
            false
        }
        State::Standby => true,
        State::Streaming => {
            let trouble = [blocked(now, at), unanswered(now, at), now.unpublished.clone()];
            let flows = trouble.iter().all(Option::is_none);
            reasons.extend(trouble.into_iter().flatten());
            reasons.extend(endangered(now, at));
            flows
        }
    };
    Verdict { ok, state: now.state, reasons }
}

fn blocked(now: &Now, at: SystemTime) -> Option<String> {
    let waiting = now.waiting_for(at).filter(|waiting| *waiting > WAITING_MAX)?;
    Some(format!(
        "blocked: of {} records in flight the oldest has waited for its acknowledgement for {} s",
        now.in_flight_records,
        waiting.as_secs()
    ))
}

/// Events move still.
fn endangered(now: &Now, at: SystemTime) -> Option<String> {
    let unreserved = now.fresh_server(at)?.wal_status.as_deref() == Some("unreserved");
    unreserved
        .then(|| "the slot keeps more log than max_slot_wal_keep_size: PostgreSQL is about to give it up".to_owned())
}

fn unanswered(now: &Now, at: SystemTime) -> Option<String> {
    let Some(sample) = &now.server else {
        return Some("PostgreSQL has not been asked for its position yet".to_owned());
    };
    let silent = age(sample.taken, at);
    (silent > SILENCE_MAX).then(|| format!("PostgreSQL has not told its position for {} s", silent.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        http::tests::{at, facts, streaming},
        pipeline::Ticket,
    };

    #[test]
    fn a_stream_that_moves_is_ready_whatever_kafka_complains_of() {
        let mut now = streaming();
        now.turn(Some(Ticket(1)), at(100));
        assert!(ready(&now, at(130)).ok);
        now.reason = Some("broker down".to_owned());
        assert_eq!(ready(&now, at(110)).reasons, ["broker down"]);
        assert!(ready(&now, at(110)).ok);
    }

    #[test]
    fn a_record_that_waits_too_long_blocks() {
        let mut now = streaming();
        now.in_flight_records = 3;
        now.turn(Some(Ticket(1)), at(100));
        now.turn(Some(Ticket(1)), at(131));
        let verdict = ready(&now, at(131));
        assert!(!verdict.ok);
        assert!(verdict.reasons[0].contains("3 records") && verdict.reasons[0].contains("31 s"), "{verdict:?}");
        now.turn(Some(Ticket(2)), at(132));
        assert!(ready(&now, at(133)).ok, "it moved");
    }

    #[test]
    fn a_server_that_does_not_answer_is_told() {
        let mut now = streaming();
        assert!(ready(&now, at(160)).ok);
        assert!(ready(&now, at(161)).reasons[0].contains("61 s"));
        now.server = None;
        assert!(!ready(&now, at(100)).ok);
    }

    #[test]
    fn a_standby_is_ready_and_says_what_it_waits_for() {
        let mut now = streaming();
        (now.state, now.reason) = (State::Standby, Some("slot in use".to_owned()));
        assert_eq!(
            ready(&now, at(500)),
            Verdict { ok: true, state: State::Standby, reasons: vec!["slot in use".into()] }
        );
        for state in
            [State::Connecting, State::SlotLost, State::Preparing, State::Paused, State::Stopped, State::Stopping]
        {
            now.state = state;
            assert!(!ready(&now, at(100)).ok, "{state:?}");
        }
    }

    #[test]
    fn only_a_loop_that_stands_still_is_not_alive() {
        let mut now = streaming();
        now.turn(None, at(100));
        assert!(alive(&now, &facts(), at(160)).ok);
        assert!(!alive(&now, &facts(), at(161)).ok);
        now.state = State::Connecting;
        assert!(alive(&now, &facts(), at(100_000)).ok, "a database that is away is no reason to restart");
    }
}
