//! A slot that cannot give what it held: what is known of the gap, and what is done about it.
//!
//! What is not proven published is sent from the table, or an operator accepts the gap, or the stream ends. It is never
//! passed over.

use std::{
    fmt,
    mem::take,
    time::{Duration, Instant},
};

use tokio_postgres::Client;

use super::{Error, Learnt};
use crate::{
    chain::Chain,
    config::{Config, OnSlotLoss},
    pipeline::Lsn,
    postgres::{self, dead_letter, progress::Progress, rows::Plan, sql::Sql},
    setup::names,
};

/// Counting takes no longer: nobody waits for a number.
const COUNT_MAX: Duration = Duration::from_secs(10);
/// A slot that is lost more often needs a person.
const RECOVERIES_MAX: usize = 3;
const RECOVERIES_WITHIN: Duration = Duration::from_secs(60 * 60);

/// Events may be missing between two positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub slot: String,
    pub what: What,
    /// The last position that is known to be confirmed: all that ends at or below it is delivered.
    pub from: Option<Lsn>,
    /// Where the slot begins, else where the log ended when the loss was found.
    pub to: Lsn,
    pub unproven: Unproven,
}

/// What happened to the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Missing,
    Invalidated {
        reason: String,
    },
    /// It begins beyond what was confirmed.
    Moved,
}

/// Rows that are not proven published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproven {
    Rows(u64),
    /// Why they cannot be told apart, or not counted.
    Unknown(String),
}

/// What is done about a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cure {
    /// The slot is made anew, and rows that are not proven published are sent first.
    Recover,
    /// The stream goes on without them.
    Accept,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Missing => f.write_str("it was there, and is gone"),
            What::Invalidated { reason } => write!(f, "PostgreSQL gave it up ({reason})"),
            What::Moved => f.write_str(
                "it was moved by hand, dropped and made anew, or another program streamed from it (then walpost setup --adopt \
                 takes it over from where it stands)",
            ),
        }
    }
}

impl Loss {
    fn slot_and_what(&self) -> String {
        let Loss { slot, what, from, to, .. } = self;
        match (what, from) {
            (What::Moved, Some(from)) => format!(
                "replication slot {slot} begins at {to}, beyond {from}, up to which it is known to be confirmed: {what}"
            ),
            (What::Missing | What::Invalidated { .. } | What::Moved, _) => {
                format!("replication slot {slot} is lost: {what}")
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { from, to, unproven, .. } = self;
        let from = from.map_or_else(|| "its beginning".to_owned(), |from| from.to_string());
        f.write_str(&self.slot_and_what())?;
        write!(f, "; events committed between {from} and {to} may never have been sent")?;
        match unproven {
            Unproven::Rows(0) => write!(f, " (every row of the table is proven published)"),
            Unproven::Rows(1) => write!(f, " (1 row of the table is not proven published)"),
            Unproven::Rows(rows) => write!(f, " ({rows} rows of the table are not proven published)"),
            Unproven::Unknown(why) => write!(f, " (how many rows is not known: {why})"),
        }
    }
}

/// Counts the rows that are not proven published, as far as that can be done in bounded time; and whether they can be told
/// apart at all, else why not.
pub(super) async fn unproven(
    config: &Config,
    client: &Sql,
    progress: Option<&Progress>,
) -> (Unproven, Result<(), String>) {
    let untold = |why: String| (Unproven::Unknown(why.clone()), Err(why));
    if config.outboxes.is_empty() && !config.messages.is_empty() {
        return untold("messages are in no table".to_owned());
    }
    let Some(progress) = progress else {
        return untold("there is no proof of what is published: walpost setup prepares it".to_owned());
    };
    let plans = match Plan::all(client, &config.outboxes, &config.publication).await {
        Ok(plans) => plans,
        Err(error) => return untold(Chain(&error).to_string()),
    };
    let home = names::home(config);
    let letters = match dead_letter::Access::read(client, home).await {
        Ok(letters) => letters.is_some_and(|letters| letters.select),
        Err(error) => return (Unproven::Unknown(Chain(&error).to_string()), Ok(())),
    };
    let mut owed = Vec::with_capacity(plans.len());
    for plan in &plans {
        let Some(published) = plan.published() else {
            return untold(format!(
                "{} has no column with the id of the transaction that inserted a row, and after_publish marks none",
                plan.table()
            ));
        };
        if published.is_by_progress() && progress.published.is_none() {
            let why = "it was lost before anything was proven published, and where it began is not known: walpost did not \
                       make it";
            return untold(why.to_owned());
        }
        owed.push(published.owed(progress, home, letters));
    }
    let mut sum = 0;
    for (plan, owed) in plans.iter().zip(&owed) {
        match count(client, plan, owed).await {
            Ok(rows) => sum += rows,
            Err(error) => return (Unproven::Unknown(Chain(&error).to_string()), Ok(())),
        }
    }
    (Unproven::Rows(sum), Ok(()))
}

async fn count(client: &Client, plan: &Plan, condition: &str) -> Result<u64, postgres::Error> {
    client.batch_execute(&format!("set statement_timeout = {}", COUNT_MAX.as_millis())).await?;
    let counted = plan.count(client, Some(condition)).await;
    client.batch_execute("reset statement_timeout").await?;
    counted
}

/// What is done about a loss; an error: nothing, and why.
pub(super) fn answer(
    config: &Config,
    learnt: &mut Learnt,
    loss: Loss,
    provable: Result<(), String>,
) -> Result<Cure, Error> {
    // Who moves a slot on purpose wants what it passed over left out.
    let moved = loss.what == What::Moved && learnt.accept_gap;
    let recovers = config.on_slot_loss == OnSlotLoss::Recover && provable.is_ok() && !config.outboxes.is_empty();
    let recovery = match (config.on_slot_loss, provable) {
        _ if moved => Err("it was moved on purpose".to_owned()),
        _ if !config.messages.is_empty() && recovers && take(&mut learnt.accept_gap) => once_more(learnt),
        _ if !config.messages.is_empty() => Err(format!(
            "Messages with the prefix {} are in no table: what the slot held of them is gone, and whoever sent it can alone \
             send it again. walpost run --accept-gap goes on with a new slot, and sends {}",
            config.prefixes(),
            if recovers { "the rows that are not proven published, and no message" } else { "none of them" }
        )),
        (OnSlotLoss::Recover, Ok(())) => once_more(learnt),
        (OnSlotLoss::Recover, Err(why)) => Err(format!(
            "on_slot_loss = \"recover\" cannot tell which rows to send: {why}. Compare the table with the topics; \
             walpost run --accept-gap then goes on with a new slot, and sends none of them"
        )),
        (OnSlotLoss::Halt, Ok(())) => Err("on_slot_loss = \"halt\" ends the stream here. With walpost run --on-slot-loss \
             recover the slot is made anew and the rows that are not proven published are sent, some of them for the second \
             time; with --accept-gap it goes on without them"
            .to_owned()),
        (OnSlotLoss::Halt, Err(why)) => Err(format!(
            "on_slot_loss = \"halt\" ends the stream here, and which rows to send cannot be told: {why}. Compare the table \
             with the topics; walpost run --accept-gap then goes on with a new slot, and sends none of them"
        )),
    };
    match recovery {
        Ok(()) => {
            tracing::error!(
                "{loss}. The slot is made anew, and these rows are sent first, some of them for the second time; what was \
                 deleted before it was sent is not in the table, and is not sent"
            );
            Ok(Cure::Recover)
        }
        Err(_) if take(&mut learnt.accept_gap) => {
            tracing::warn!("{loss}. They are not sent: --accept-gap goes on without them");
            Ok(Cure::Accept)
        }
        Err(why) => Err(Error::Lost { loss: Box::new(loss), why }),
    }
}

/// The slot was lost before its stream, while rows of the table were read, which is begun anew with another slot.
pub(super) fn begin_anew(learnt: &mut Learnt, loss: Loss) -> Result<(), Error> {
    match once_more(learnt) {
        Ok(()) => {
            tracing::warn!(
                "{}: rows of the table are read from the first one again, with a new slot",
                loss.slot_and_what()
            );
            Ok(())
        }
        Err(why) => Err(Error::Lost { loss: Box::new(loss), why }),
    }
}

/// A slot that is lost again and again is not made anew without end.
fn once_more(learnt: &mut Learnt) -> Result<(), String> {
    learnt.recoveries.retain(|at| at.elapsed() < RECOVERIES_WITHIN);
    if learnt.recoveries.len() >= RECOVERIES_MAX {
        return Err(format!(
            "It was made anew {RECOVERIES_MAX} times within the hour, and something takes it away again and again: see to that \
             (max_slot_wal_keep_size, idle_replication_slot_timeout), then start walpost again"
        ));
    }
    learnt.recoveries.push(Instant::now());
    Ok(())
}
