//! Taking over a slot and a publication that another program made and used, such as Debezium's.
//!
//! The slot goes on where it is confirmed. Of the rows that are there by now nothing is proven: which of them the other
//! program sent is not known. Neither slot nor publication is changed: a slot sees a publication as it was where the log is
//! read, so a change would come too late for what is still to be sent.

use super::{
    facts::{Facts, OutboxFacts},
    names,
    plan::{Action, Step},
};
use crate::{
    check::{self, Finding, Severity},
    config::Config,
    pipeline::{OnUpdate, outbox::Outbox},
    postgres::{
        coverage,
        progress::{self, Progress},
        publication::Publication,
        quote,
        slot::Slot,
        table::Table,
    },
};

/// Writes down where the slot stands, unless that is known. `before`: the steps that come first.
pub(super) fn step(config: &Config, facts: &Facts, before: &[Step]) -> Option<Step> {
    let slot = facts.slot.as_ref()?;
    let (home, name) = (names::home(config), quote::ident(&config.slot));
    let at = slot.confirmed.map(|at| format!(" at {at}")).unwrap_or_default();
    let title = match &facts.known {
        // That is another step's.
        Some(_) if facts.progress_is_foreign => return None,
        Some(known) if !has_moved(known, slot) => return None,
        Some(_) => format!("take over slot {name}{at} anew: it was moved since walpost used it"),
        None => format!("take over slot {name}{at}"),
    };
    let table = quote::qualified(home, progress::TABLE);
    let made =
        before.iter().find(|step| step.makes.iter().any(|made| made.schema == home && made.name == progress::TABLE));
    let lacking = match made {
        Some(step) => step.lacking.clone(),
        None if facts.may_write_progress => None,
        None => Some(format!(
            "grant select, insert, update, delete on {table} to {}",
            quote::ident(&facts.server.role.name)
        )),
    };
    let published = coverage::published(&config.publication, &config.outboxes, facts.server.major());
    let sql = progress::begin_sql(home, &config.slot, &config.publication, &published);
    Some(Step { title, sql, makes: Vec::new(), action: Action::Adopt, lacking, optional: true })
}

/// The slot was confirmed by others since. What is being read or begun again is `walpost run`'s to finish.
fn has_moved(known: &Progress, slot: &Slot) -> bool {
    if known.reading.is_some() || known.rewind.as_ref().is_some_and(|rewind| !rewind.done) {
        return false;
    }
    let stands = if known.stopped_clean { slot.confirmed } else { slot.restart_lsn };
    stands > known.confirmed
}

/// Why they cannot be taken over as they are.
pub(super) fn faults(config: &Config, facts: &Facts, outboxes: &[(&Outbox, &OutboxFacts)]) -> Vec<Finding> {
    let about = format!("slot {}", quote::ident(&config.slot));
    let mut faults = Vec::new();
    match &facts.slot {
        None => faults.push(Finding::error(
            about,
            "does not exist: there is nothing to take over",
            "name the slot with --slot (select slot_name, plugin, database from pg_replication_slots), or leave --adopt out",
        )),
        Some(slot) if slot.active => faults.push(Finding::error(about, in_use(slot), "stop the connector or program that uses it")),
        Some(_) => {}
    }
    let errors = publication(config, facts.publication.as_ref(), outboxes);
    faults.extend(errors.into_iter().filter(|finding| finding.severity == Severity::Error).map(|finding| Finding {
        remedy: format!(
            "{}. The slot sees that only from then on: start the connector again, change the publication, and adopt the slot \
             when it has passed that",
            finding.remedy
        ),
        ..finding
    }));
    faults
}

fn in_use(slot: &Slot) -> String {
    let application = slot.holder.as_ref().and_then(|holder| holder.application_name.as_ref());
    match &slot.holder {
        Some(holder) => format!(
            "is in use by process {}, application {}",
            holder.pid,
            application.map_or("unknown".to_owned(), |name| format!("{name:?}"))
        ),
        None => "is in use".to_owned(),
    }
}

/// What is wrong with the publication, but for what it publishes besides inserts.
fn publication(config: &Config, found: Option<&Publication>, outboxes: &[(&Outbox, &OutboxFacts)]) -> Vec<Finding> {
    let inserts = found.map(|found| Publication { updates: false, deletes: false, truncates: false, ..found.clone() });
    check::publication(&config.publication, inserts.as_ref(), &tables(outboxes), true)
}

/// What they do besides, and what walpost makes of it.
pub(super) fn notices(config: &Config, facts: &Facts, outboxes: &[(&Outbox, &OutboxFacts)]) -> Vec<Finding> {
    let Some(found) = &facts.publication else { return Vec::new() };
    let mut notices = check::publication(&config.publication, Some(found), &tables(outboxes), true);
    let errors = publication(config, Some(found), outboxes);
    notices.retain(|finding| !(finding.severity == Severity::Error && errors.contains(finding)));
    let changes = [(found.updates, "updates"), (found.deletes, "deletes"), (found.truncates, "truncates")];
    let changes: Vec<_> = changes.into_iter().filter(|(published, _)| *published).map(|(_, word)| word).collect();
    if !changes.is_empty() {
        let what = format!("sends {} of the outbox too", changes.join(", "));
        let about = format!("publication {}", quote::ident(&config.publication));
        notices.push(match config.on_update {
            OnUpdate::Ignore => {
                Finding::note(about, what, "nothing: walpost passes over them (on_update = \"ignore\")")
            }
            OnUpdate::Halt => Finding::warning(
                about,
                format!("{what}, and the first of them ends the stream (on_update = \"halt\")"),
                "on_update = \"ignore\", at least until the slot has passed those that are in the log",
            ),
        });
    }
    notices
}

fn tables<'a>(outboxes: &[(&'a Outbox, &'a OutboxFacts)]) -> Vec<(&'a Outbox, Option<&'a Table>)> {
    outboxes.iter().map(|(outbox, have)| (*outbox, have.table.as_ref())).collect()
}
