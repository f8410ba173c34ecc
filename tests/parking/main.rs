//! Parking and its hand-over, by seed: the real decisions between models of the log, the table of dead letters, Kafka and
//! a person, through crashes at any point, judged by an oracle that shares no code with them.
//!
//! `WALPOST_SIM_SEEDS=100000` runs more than 1,000 seeds; `WALPOST_SIM_SEED=17` runs one and prints its story (with
//! `-- --nocapture`).

mod oracle;
#[path = "../simulation/random.rs"]
#[allow(dead_code, reason = "the other simulation draws in more ways")]
mod random;
mod table;
mod world;

use oracle::Promise;
use world::{Sabotage, World};

const SEEDS: u64 = 1_000;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

#[test]
fn every_promise_holds_on_every_seed() {
    if let Some(seed) = variable("WALPOST_SIM_SEED") {
        let mut world = World::new(seed, None);
        world.story = Some(Vec::new());
        let outcome = world.run();
        println!("{}", world.story.unwrap_or_default().join("\n"));
        outcome.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        return;
    }
    let seeds = variable("WALPOST_SIM_SEEDS").unwrap_or(SEEDS);
    let (mut parked, mut replayed, mut crashes, mut twice, mut calm) = (0, 0, 0, 0, 0);
    for seed in 0..seeds {
        let mut world = World::new(seed, None);
        if let Err(violation) = world.run() {
            panic!("seed {seed}: {violation}\nWALPOST_SIM_SEED={seed} tells the story");
        }
        parked += world.table.parked;
        replayed += world.table.replayed;
        crashes += world.crashes;
        twice += world.oracle.twice;
        calm += u64::from(!world.oracle.faults);
    }
    println!(
        "{seeds} seeds, {calm} without a fault: {parked} parked, {replayed} replayed, {crashes} crashes, {twice} sent twice"
    );
    assert!(parked > seeds * 5 && replayed > seeds * 3 && crashes > seeds && twice > 0, "too mild to prove anything");
    assert!(calm > seeds / 50, "runs without a fault are needed too");
}

/// After a crash, a table that fails, and a look before it takes what the stream parked again ahead of a requested row.
#[test]
fn a_replay_does_not_overtake_what_is_parked_again_and_unwritten() {
    World::new(18_310, None).run().unwrap_or_else(|violation| panic!("{violation}"));
}

/// The saboteur is caught by a promise that it breaks.
#[track_caller]
fn caught(sabotage: Sabotage, promises: &[Promise]) {
    let caught = |seed| World::new(seed, Some(sabotage)).run().err();
    let found = (0..SEEDS).filter_map(caught).find(|violation| promises.contains(&violation.promise));
    assert!(found.is_some(), "{sabotage:?} breaks {promises:?}, and nobody noticed in {SEEDS} seeds");
}

#[test]
fn unparking_before_the_last_row_is_settled_is_caught() {
    caught(Sabotage::UnparksEarly, &[Promise::Overtaken]);
}

#[test]
fn acknowledging_a_letter_before_it_is_written_is_caught() {
    caught(Sabotage::AcknowledgesUnwritten, &[Promise::Confirmed]);
}

#[test]
fn sending_a_live_event_of_a_parked_key_is_caught() {
    caught(Sabotage::SendsParked, &[Promise::Overtaken]);
}

#[test]
fn replaying_out_of_order_is_caught() {
    caught(Sabotage::ReplaysBackwards, &[Promise::Order]);
}

#[test]
fn forgetting_at_a_restart_what_is_parked_is_caught() {
    caught(Sabotage::ForgetsParked, &[Promise::Overtaken]);
}

#[test]
fn forgetting_at_a_restart_what_the_table_has_is_caught() {
    caught(Sabotage::ForgetsKnown, &[Promise::Followed]);
}

#[test]
fn not_announcing_what_is_written_is_caught() {
    caught(Sabotage::ForgetsToAnnounce, &[Promise::Announced]);
}

#[test]
fn storing_a_position_past_an_unwritten_letter_is_caught() {
    caught(Sabotage::StoresPastUnwritten, &[Promise::Confirmed]);
}

#[test]
fn sending_what_waited_behind_a_refused_event_is_caught() {
    caught(Sabotage::SendsBehind, &[Promise::Overtaken]);
}

#[test]
fn forgetting_at_a_restart_what_was_replayed_is_caught() {
    caught(Sabotage::ForgetsReplayed, &[Promise::Once]);
}
