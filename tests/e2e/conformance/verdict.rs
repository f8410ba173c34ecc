//! Whether a run is what its variant asks for.

use std::{collections::BTreeSet, fmt::Debug};

use fancy_regex::Regex;

use super::{
    compare::Comparison,
    golden::{Outcome, Variant},
    run::{Letter, Observed},
};
use crate::support::records::Record;

/// Ok, or the first difference.
pub fn verdict(variant: &Variant, observed: &Observed) -> Result<(), String> {
    let comparison = Comparison { variant, database: &observed.database, time: observed.time.clone() };
    let beyond = match comparison.beyond(&observed.records) {
        Ok(beyond) => beyond,
        Err(difference) => return Err(with_errors(difference, observed)),
    };
    if let Some(what) = &observed.awaited {
        return Err(with_errors(format!("not in time: {what}"), observed));
    }
    match variant.compare.outcome {
        Outcome::Records => all_are_equal(variant, observed, &beyond),
        Outcome::FailsAtARow => one_is_refused(variant, observed, &beyond),
        Outcome::FailsAtStart => it_is_refused(variant, observed, &beyond),
    }
    .map_err(|difference| with_errors(difference, observed))
}

fn all_are_equal(variant: &Variant, observed: &Observed, beyond: &[&Record]) -> Result<(), String> {
    if let Some(record) = beyond.first() {
        return Err(format!("{} more than expected, the first: {record:?}", beyond.len()));
    }
    // What Debezium skips is kept.
    let skips = variant.option("errors.tolerance").as_deref() == Some("all");
    if !skips && observed.letters.len() != variant.dead_letters {
        return Err(format!("{} dead letters, expected {}", observed.letters.len(), variant.dead_letters));
    }
    runs_to_the_end(observed)?;
    what_was_made(variant, observed)
}

/// The event that kills Debezium's task is a poison event, or an error ends the process.
fn one_is_refused(variant: &Variant, observed: &Observed, beyond: &[&Record]) -> Result<(), String> {
    let compare = &variant.compare;
    let mut delivered = BTreeSet::new();
    for record in beyond {
        let id = record.header("id").unwrap_or_default();
        if !compare.may_follow_ids.iter().any(|may| may == id) || !delivered.insert(id) {
            return Err(format!("a record that may not follow: {record:?}"));
        }
    }
    if observed.ended.is_some() {
        return ends_with_the_reason(variant, observed);
    }
    let own: Vec<&Letter> = observed.letters.iter().filter(|letter| letter.class != "parked").collect();
    let refused = |id: &str| own.iter().any(|letter| letter.event_id == id);
    if let Some(id) = compare.poison_ids.iter().find(|id| !refused(id)) {
        return Err(format!("{id} is no dead letter"));
    }
    let pattern = pattern(variant);
    match own.iter().find(|letter| !has(&pattern, &letter.reason)) {
        Some(letter) => return Err(format!("the reason does not have {pattern}: {letter:?}")),
        None if own.is_empty() => return Err("nothing is a dead letter".to_owned()),
        None => {}
    }
    let kept: BTreeSet<&str> = observed.letters.iter().map(|letter| letter.event_id.as_str()).collect();
    if let Some(id) =
        compare.may_follow_ids.iter().find(|id| !delivered.contains(id.as_str()) && !kept.contains(id.as_str()))
    {
        return Err(format!("{id} is neither delivered nor a dead letter"));
    }
    runs_to_the_end(observed)?;
    what_was_made(variant, observed)
}

fn it_is_refused(variant: &Variant, observed: &Observed, beyond: &[&Record]) -> Result<(), String> {
    match beyond.first() {
        Some(record) => Err(format!("a record: {record:?}")),
        None => ends_with_the_reason(variant, observed),
    }
}

fn ends_with_the_reason(variant: &Variant, observed: &Observed) -> Result<(), String> {
    match observed.ended {
        None => Err("it goes on".to_owned()),
        Some(0) => Err("it ended with 0".to_owned()),
        Some(_) => {
            let pattern = pattern(variant);
            // Names that the variant gave say nothing of the reason.
            let errors = observed.errors().replace(&variant.slot(), "").replace("connector.json", "");
            let told = has(&pattern, &errors);
            told.then_some(()).ok_or_else(|| format!("its errors do not have {pattern}"))
        }
    }
}

fn runs_to_the_end(observed: &Observed) -> Result<(), String> {
    // A snapshot alone is work that ends.
    match (observed.ended, observed.stopped) {
        (None | Some(0), None | Some(0)) => Ok(()),
        codes => Err(format!("it ended by itself, or at the request, with {codes:?}")),
    }
}

fn what_was_made(variant: &Variant, observed: &Observed) -> Result<(), String> {
    for (topic, partitions) in &variant.compare.topic_partitions {
        let found = observed.topics.get(topic);
        if found != Some(partitions) {
            return Err(format!("{topic} has partitions {found:?}, expected {partitions}"));
        }
    }
    let runs: BTreeSet<_> =
        observed.records.iter().filter_map(|record| record.header("__debezium.context.runId")).collect();
    if runs.len() > observed.starts {
        return Err(format!("ids of runs: {runs:?}, starts: {}", observed.starts));
    }
    let made = &variant.made;
    made_so("publications", made.publications.as_ref(), &observed.publications)?;
    made_so("tables of the publications", made.tables.as_ref(), &observed.tables)?;
    made_so("slot", made.slot.as_ref(), &observed.slot)
}

fn made_so<T: PartialEq + Debug>(what: &str, expected: Option<&T>, found: &T) -> Result<(), String> {
    match expected {
        Some(expected) if expected != found => Err(format!("{what}: expected {expected:?}, got {found:?}")),
        _ => Ok(()),
    }
}

fn pattern(variant: &Variant) -> String {
    format!("(?i){}", variant.compare.message_has.as_ref().expect("a failure has a message"))
}

fn has(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).expect("it is a regular expression").is_match(text).expect("it does not backtrack")
}

fn with_errors(difference: String, observed: &Observed) -> String {
    let errors = observed.errors();
    let code = observed.ended.map_or(String::new(), |code| format!("\n  walpost ended with {code}"));
    let letters: Vec<String> = observed.letters.iter().take(3).map(|letter| format!("\n  {letter:?}")).collect();
    let errors = if errors.is_empty() { errors } else { format!("\n  {}", errors.replace('\n', "\n  ")) };
    format!("{difference}{code}{}{errors}", letters.concat())
}
