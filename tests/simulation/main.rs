//! The pure core between a model of PostgreSQL that sends real pgoutput bytes and a model of Kafka that writes and
//! reports whenever it likes, through crashes at any point, judged by an oracle that shares no code with it.
//!
//! A seed is a whole run: the weather (how often what happens), the workload, the faults. Time is virtual.
//! Half of the seeds deliver exactly once: with Kafka transactions, relays that freeze and thaw after another has taken
//! over, and older copies of the server that take its place.
//!
//! - `cargo test --test simulation` runs 1,000 seeds;
//! - `WALPOST_SIM_SEEDS=100000` runs more;
//! - `WALPOST_SIM_SEED=17` runs one and prints its story (with `-- --nocapture`).
//!
//! The oracle is tested too: every saboteur of [`sabotage`] must be caught within the default seeds.

mod broker;
mod catalog;
#[path = "../support/encode.rs"]
mod encode;
mod glance;
mod kafka;
mod oracle;
#[path = "../support/outbox.rs"]
mod outbox;
mod postgres;
mod random;
mod relay;
mod sabotage;
mod story;
mod transaction;
mod walsender;
mod world;

use oracle::{Peaks, Promise};
use sabotage::Sabotage;
use story::Story;

const SEEDS: u64 = 1_000;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

/// Runs a seed and prints what happens.
fn replay(seed: u64) {
    let mut story = Story::told();
    let outcome = world::run(seed, None, &mut story);
    println!("{}", story.lines().join("\n"));
    match outcome {
        Ok(summary) => println!("seed {seed}: {summary:?}"),
        Err(violation) => panic!("seed {seed}: {violation}"),
    }
}

#[test]
fn every_promise_holds_on_every_seed() {
    if let Some(seed) = variable("WALPOST_SIM_SEED") {
        replay(seed);
        return;
    }
    let seeds = variable("WALPOST_SIM_SEEDS").unwrap_or(SEEDS);
    let mut events = 0;
    let mut with_faults = 0;
    let mut duplicates = 0;
    let mut exactly_once = 0;
    let (mut halted, mut refused, mut phantoms) = (0, 0, 0);
    let mut peaks = Peaks::default();
    for seed in 0..seeds {
        match world::run(seed, None, &mut Story::silent()) {
            Ok(summary) => {
                exactly_once += u64::from(summary.exactly_once);
                halted += u64::from(summary.halted);
                refused += summary.refused;
                phantoms += summary.phantoms;
                events += summary.events;
                with_faults += u64::from(summary.faults > 0);
                duplicates += summary.duplicates;
                peaks = peaks.max(summary.peaks);
            }
            Err(violation) => panic!("seed {seed}: {violation}\nWALPOST_SIM_SEED={seed} tells the story"),
        }
    }
    println!("{seeds} seeds, {with_faults} with faults: {events} events, {duplicates} duplicates; {peaks}");
    println!("{exactly_once} exactly once: {halted} halted, {phantoms} phantoms, {refused} refusals");
    assert!(events as u64 > seeds * 10 && with_faults > seeds / 4, "the weather is too mild to prove anything");
    assert!(with_faults < seeds * 9 / 10 && duplicates > 0, "runs with and without faults are both needed");
    assert!(exactly_once > seeds / 3 && exactly_once < seeds * 2 / 3, "both ways of delivery are needed");
    assert!(halted > 0 && halted < exactly_once / 4, "copies of the server must halt some runs, and few");
    assert!(phantoms > 0 && refused > 0, "phantom positions and refused producers are needed");
}

/// The saboteur is caught by the promise that it breaks.
#[track_caller]
fn caught(sabotage: Sabotage, promise: Promise) {
    let caught = (0..SEEDS).filter_map(|seed| world::run(seed, Some(sabotage), &mut Story::silent()).err());
    let mut others = Vec::new();
    for violation in caught {
        if violation.promise == promise {
            return;
        }
        others.push(violation.to_string());
    }
    panic!("{sabotage:?} breaks {promise:?}, and nobody noticed in {SEEDS} seeds; noticed were {others:?}");
}

#[test]
fn acknowledging_on_receipt_is_caught() {
    caught(Sabotage::AcknowledgesOnReceipt, Promise::G1);
}

#[test]
fn swallowing_a_failed_delivery_is_caught() {
    caught(Sabotage::SwallowsFailures, Promise::G1);
}

#[test]
fn trusting_a_keepalive_in_mid_transaction_is_caught() {
    caught(Sabotage::TrustsKeepalivesInTransactions, Promise::G1);
}

#[test]
fn trusting_a_keepalive_with_work_outstanding_is_caught() {
    caught(Sabotage::TrustsKeepalivesWithWorkOutstanding, Promise::G1);
}

#[test]
fn confirming_one_byte_more_is_caught() {
    caught(Sabotage::ConfirmsPlusOne, Promise::G1);
}

#[test]
fn confirming_what_was_read_is_caught() {
    caught(Sabotage::ConfirmsWhatItRead, Promise::G1);
}

#[test]
fn resuming_from_what_was_read_is_caught() {
    caught(Sabotage::ResumesFromWhatItRead, Promise::G1);
}

#[test]
fn skipping_a_record_is_caught() {
    caught(Sabotage::SkipsRecords, Promise::G1);
}

#[test]
fn swapping_two_records_of_a_key_is_caught() {
    caught(Sabotage::SwapsTwoOfAKey, Promise::G2);
}

#[test]
fn a_producer_that_leaves_gaps_is_caught() {
    caught(Sabotage::LeavesGaps, Promise::G2);
}

#[test]
fn sending_a_record_twice_is_caught() {
    caught(Sabotage::RepeatsRecords, Promise::G3);
}

#[test]
fn reading_without_room_is_caught() {
    caught(Sabotage::ReadsWithoutRoom, Promise::G4);
}

#[test]
fn ignoring_keepalives_is_caught() {
    caught(Sabotage::IgnoresKeepalives, Promise::G5);
}

#[test]
fn silence_while_blocked_is_caught() {
    caught(Sabotage::SilentWhileBlocked, Promise::G6);
}

#[test]
fn ignoring_a_request_for_a_reply_is_caught() {
    caught(Sabotage::IgnoresRequestsForReplies, Promise::G6);
}

#[test]
fn acknowledging_before_the_commit_is_caught() {
    caught(Sabotage::AcknowledgesBeforeTheCommit, Promise::G1);
}

#[test]
fn forgetting_to_skip_is_caught() {
    caught(Sabotage::ForgetsToSkip, Promise::G3);
}

#[test]
fn skipping_one_too_many_is_caught() {
    caught(Sabotage::SkipsOneTooMany, Promise::G1);
}

#[test]
fn storing_the_position_before_the_commit_is_caught() {
    caught(Sabotage::StoresBeforeTheCommit, Promise::G1);
}

#[test]
fn storing_the_position_after_the_commit_is_caught() {
    caught(Sabotage::StoresAfterTheCommit, Promise::G3);
}

#[test]
fn confirming_before_the_stored_position_is_met_is_caught() {
    caught(Sabotage::ConfirmsWhatItSkips, Promise::G1);
}

#[test]
fn reading_the_position_before_fencing_is_caught() {
    caught(Sabotage::ReadsBeforeItFences, Promise::G3);
}
