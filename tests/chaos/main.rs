//! A campaign of faults against the whole of it: real PostgreSQL with a standby, real Kafka, two processes of walpost,
//! writers that never stop, and a consumer that reads along. By seed; each fault is followed by a probe that must arrive.
//!
//! `scripts/chaos.sh` runs the long form: 300 faults of every kind, in both deliveries. The short form is one fault of each
//! kind that needs no standby and costs little.

#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` marks what stories use of the support")]

mod consumer;
mod disk;
mod fault;
mod oracle;
#[path = "../simulation/random.rs"]
#[allow(dead_code, reason = "the simulation draws in more ways")]
mod random;
mod report;
#[path = "../e2e/support/mod.rs"]
#[allow(dead_code, reason = "the end-to-end stories use the rest")]
mod support;
mod world;
mod writers;

use std::{
    env, thread,
    time::{SystemTime, UNIX_EPOCH},
};

use fault::Kind;
use random::Random;
use report::Report;
use support::long;
use world::{Delivery, Rig, World};

const SEED_OF_THE_SHORT_FORM: u64 = 20;

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

#[test]
fn every_promise_holds_through_a_campaign_of_faults() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs();
    let seed = variable("WALPOST_CHAOS_SEED").unwrap_or(if long() { now } else { SEED_OF_THE_SHORT_FORM });
    let deliveries = match env::var("WALPOST_CHAOS_MODE").as_deref() {
        Ok("at_least_once") => vec![Delivery::AtLeastOnce],
        Ok("exactly_once") => vec![Delivery::ExactlyOnce],
        Ok("both") | Err(_) => vec![Delivery::AtLeastOnce, Delivery::ExactlyOnce],
        Ok(other) => panic!("WALPOST_CHAOS_MODE is {other:?}: at_least_once, exactly_once or both"),
    };
    let each = variable("WALPOST_CHAOS_FAULTS").map(|faults| faults.div_ceil(deliveries.len() as u64));
    println!("WALPOST_CHAOS_SEED={seed}");
    let reports: Vec<Report> = thread::scope(|scope| {
        let runs: Vec<_> =
            deliveries.iter().map(|delivery| scope.spawn(move || campaign(*delivery, seed, each))).collect();
        runs.into_iter().map(|run| run.join().unwrap_or_else(|_| panic!("seed {seed}: see above"))).collect()
    });
    for report in &reports {
        println!("\n{report}");
    }
    let broken: usize = reports.iter().map(|report| report.broken.len()).sum();
    assert!(broken == 0, "{broken} promises are broken, see above: WALPOST_CHAOS_SEED={seed}");
}

fn campaign(delivery: Delivery, seed: u64, faults: Option<u64>) -> Report {
    let mut random = Random::new(seed ^ delivery.salt());
    let (kinds, rig) = if long() { (Kind::ALL.to_vec(), Rig::Whole) } else { (Kind::CHEAP.to_vec(), Rig::Small) };
    let count = faults.map_or(if long() { 150 } else { kinds.len() }, |faults| faults as usize);
    let deck = fault::deck(&mut random, &kinds, count);
    let mut world = World::start(delivery, rig, random);
    let mut outcome = Ok(());
    for (number, kind) in deck.into_iter().enumerate() {
        outcome = world.suffer(number + 1, kind);
        if let Err(broken) = &outcome {
            world.tell(broken);
            break;
        }
    }
    world.finish(outcome)
}
