//! The rows of an outbox, read from the table as the stream would have sent them.
//!
//! `COPY … TO STDOUT` prints a value by the output function of its type, in the client's encoding, as pgoutput does. So,
//! under the settings of the replication session, the texts are the stream's byte for byte; what COPY escapes on the
//! way is undone here, and a row becomes the Insert message that the stream has for it. Only columns and rows that the
//! publication lets through are read: what the stream would leave out is no event.
//!
//! Row security is not applied but refused: the stream sends what a policy would hide.

mod copy;
mod plan;

use std::pin::Pin;

use futures_util::{FutureExt, StreamExt, TryStreamExt};
use tokio_postgres::{Client, CopyOutStream};

pub use plan::{Key, Plan, Unreadable};

use super::{Error, quote, sql::Sql, startup::SETTINGS};
use copy::{Lines, Malformed};

/// Bytes that are taken in at once before the caller has its turn.
const READ_MAX: usize = 256 << 10;

/// Begins the transaction in which tables are read. `snapshot`: an exported one, which must be imported while whoever
/// exported it still holds it. Gives the transactions that are visible, as `pg_current_snapshot()` prints them.
pub async fn begin(client: &Sql, snapshot: Option<&str>) -> Result<String, Error> {
    // Should this process die, the server notices, where the platform lets it.
    client.batch_execute("set client_connection_check_interval = '1s'").await.ok();
    let mut sql = "begin isolation level repeatable read read only;".to_owned();
    if let Some(snapshot) = snapshot {
        sql.push_str(&format!("set transaction snapshot {};", quote::literal(snapshot)));
    }
    // Local ones, which a pooler takes too.
    let more = [
        ("row_security", "off"),
        ("lock_timeout", "0"),
        // Where no order is asked for it is that of the heap.
        ("synchronize_seqscans", "off"),
        ("max_parallel_workers_per_gather", "0"),
    ];
    let transaction_timeout = (client.major() >= 17).then_some(("transaction_timeout", "0"));
    // The encoding is the client's from its start.
    let settings = SETTINGS.iter().filter(|(name, _)| *name != "client_encoding");
    for (name, value) in settings.copied().chain(more).chain(transaction_timeout) {
        sql.push_str(&format!("set local {name} = {};", quote::literal(value)));
    }
    client.batch_execute(&sql).await?;
    Ok(client.query_one("select pg_current_snapshot()::text", &[]).await?.try_get(0)?)
}

/// The rows of one table, while they are read.
pub struct Rows {
    plan: Plan,
    copy: Pin<Box<CopyOutStream>>,
    lines: Lines,
    ended: bool,
    /// The relation message was taken.
    described: bool,
    message: Vec<u8>,
    key: Vec<Option<String>>,
}

impl Rows {
    /// Asks for the rows of a [`Plan`], in a transaction of [`begin`]. `condition` is SQL over the columns of `o`;
    /// `after` is a row's [`Rows::key`]: only rows behind it come.
    pub async fn open(
        client: &Client,
        plan: Plan,
        condition: Option<&str>,
        after: Option<&[Option<String>]>,
    ) -> Result<Rows, Error> {
        let copy = client.copy_out(&plan.copy(condition, after)).await?;
        Ok(Rows {
            plan,
            copy: Box::pin(copy),
            lines: Lines::default(),
            ended: false,
            described: false,
            message: Vec::new(),
            key: Vec::new(),
        })
    }

    /// Waits until there is more to take, or the end is known. Cancel safe.
    pub async fn progress(&mut self) -> Result<(), Error> {
        let mut next = self.copy.try_next().await?;
        while let Some(bytes) = next {
            self.lines.push(&bytes);
            if self.lines.len() >= READ_MAX {
                return Ok(());
            }
            match self.copy.next().now_or_never() {
                Some(more) => next = more.transpose()?,
                None => return Ok(()),
            }
        }
        self.ended = true;
        Ok(())
    }

    /// The next pgoutput message: the relation, then an insert for each row. None: nothing is there yet, or it is
    /// [`Rows::is_over`].
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, Error> {
        self.message.clear();
        if !self.described {
            self.described = true;
            self.plan.describe(&mut self.message);
            return Ok(Some(&self.message));
        }
        let Some(line) = self.lines.next() else { return Ok(None) };
        let (columns, keys) = (self.plan.columns(), self.plan.order().len());
        copy::insert(line, self.plan.oid(), columns, keys, &mut self.message, &mut self.key).map_err(malformed)?;
        Ok(Some(&self.message))
    }

    /// The last message.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Where the row of the last message stands in the order of the table.
    pub fn key(&self) -> &[Option<String>] {
        &self.key
    }

    /// Nothing is left to take.
    pub fn is_over(&self) -> bool {
        self.ended && self.described && self.lines.is_empty()
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

fn malformed(Malformed: Malformed) -> Error {
    Error::protocol("a row that COPY sends is malformed")
}
