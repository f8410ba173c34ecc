//! The proof of publication, written by a story instead of a stream.

use super::{
    postgres::Database,
    walpost::{Finished, walpost},
};

/// All that is committed now counts as published by a slot.
pub fn prove(database: &Database<'_>, slot: &str) {
    database.sql(&format!(
        "INSERT INTO walpost.progress (slot, system_identifier, timeline, started, published, covered)
         SELECT '{slot}', system_identifier, 1, '1:1:', pg_current_snapshot(), array(SELECT oid FROM pg_class WHERE relkind = 'r')
         FROM pg_control_system()
         ON CONFLICT (slot) DO UPDATE SET
             published = excluded.published, started = coalesce(progress.started, excluded.started), covered = excluded.covered"
    ));
}

/// Runs `walpost prune` on a database, for the slot that has its name.
pub fn prune(database: &Database<'_>, arguments: &[&str]) -> Finished {
    prune_as("postgres", database, arguments)
}

/// The same as another role. `role` as a URL has it.
pub fn prune_as(role: &str, database: &Database<'_>, arguments: &[&str]) -> Finished {
    let url = database.url().replace("postgres@", &format!("{role}@"));
    walpost(&[&["prune", "--database-url", &url, "--slot", &database.name], arguments].concat())
}

/// What `walpost prune --json` says of the one outbox; it succeeds.
pub fn pruned(database: &Database<'_>, arguments: &[&str]) -> serde_json::Value {
    let finished = prune(database, &[&["--json"], arguments].concat());
    assert_eq!(finished.code, 0, "{finished:?}");
    let answer: serde_json::Value = serde_json::from_str(&finished.stdout).expect("it prints JSON");
    answer["outboxes"][0].clone()
}

/// Ids of the rows of the outbox, in their order.
pub fn ids_left(database: &Database<'_>) -> Vec<String> {
    let rows = database.session().rows("SELECT id FROM walpost.outbox ORDER BY id");
    rows.into_iter().map(|mut row| row.remove(0).expect("an id")).collect()
}
