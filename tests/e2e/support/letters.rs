//! Dead letters as stories see them: in the table, and by the command.

use super::{
    eventually,
    outbox::Outbox,
    postgres::Database,
    records::Record,
    streamed::WITHIN,
    walpost::{Finished, walpost},
};

/// An outbox with a table of dead letters beside it.
pub fn with_letters<'a>(database: &'a Database<'a>) -> Outbox<'a> {
    let outbox = Outbox::create(database);
    database.sql(include_str!("../../../sql/dead_letter.sql"));
    outbox
}

/// Inserts an event, and gives its id. `payload` is SQL.
pub fn insert(outbox: &Outbox<'_>, aggregate_type: &str, key: &str, payload: &str) -> String {
    outbox.database.session().get(&format!(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('{aggregate_type}', '{key}', 'e', {payload}) RETURNING id"
    ))
}

/// State, reason and event of every letter, in the order of the log.
pub fn letters(outbox: &Outbox<'_>) -> Vec<[String; 3]> {
    let rows = outbox
        .database
        .session()
        .rows("SELECT state, reason_class, event_id FROM walpost.dead_letter ORDER BY position");
    let whole =
        |row: Vec<Option<String>>| row.into_iter().map(|column| column.expect("none is NULL")).collect::<Vec<_>>();
    rows.into_iter().map(|row| whole(row).try_into().expect("three columns")).collect()
}

/// What [`letters`] gives of one.
pub fn letter(state: &str, class: &str, id: &str) -> [String; 3] {
    [state, class, id].map(str::to_owned)
}

/// Waits until every letter was sent again, and is settled.
pub fn replayed(outbox: &Outbox<'_>) {
    eventually(WITHIN, "the replay is settled", || {
        letters(outbox).iter().all(|[state, ..]| state == "replayed").then_some(())
    });
}

/// Waits until so many letters were sent again, and refused again.
pub fn refused_again(outbox: &Outbox<'_>, count: u64) {
    let session = outbox.database.session();
    eventually(WITHIN, "they were tried again", || {
        let tried = "SELECT count(*) FROM walpost.dead_letter WHERE attempts = 2 AND replay_requested_at IS NULL";
        (session.get::<u64>(tried) == count).then_some(())
    });
}

/// Runs `walpost dead-letter` on a database, for the slot that has its name.
pub fn dead_letter(database: &Database<'_>, arguments: &[&str]) -> Finished {
    let (command, more) = arguments.split_first().expect("a command at least");
    let url = database.url();
    walpost(&[&["dead-letter", command, "--database-url", &url, "--slot", &database.name], more].concat())
}

/// The same for an outbox's slot; it succeeds.
pub fn command(outbox: &Outbox<'_>, arguments: &[&str]) {
    let finished = dead_letter(outbox.database, arguments);
    assert_eq!(finished.code, 0, "{finished:?}");
}

/// Ids of events, by their header.
pub fn ids(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.header("id").expect("an id")).collect()
}
