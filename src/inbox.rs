//! The consumer's half: an event takes effect once, however often it is handed out.
//!
//! [`Inbox::claim`] goes into the transaction that has the effect; the effect is left out where it says false. Offsets are
//! committed after that transaction. The tables and functions are those of `sql/inbox.sql` (`walpost setup --inbox`), which
//! any language can call; docs/inbox.md tells how, and how long they keep a claim.
//!
//! A duplicate is told by what the function returns, and other trouble by SQLSTATE: never by the words of a message, which
//! are the server's own language.
//!
//! ```no_run
//! # async fn handle(client: &mut tokio_postgres::Client, event_id: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let inbox = walpost::inbox::Inbox::new("billing");
//! let transaction = client.transaction().await?;
//! if inbox.claim(&transaction, event_id).await? {
//!     transaction.execute("update account set points = points + 1 where id = 7", &[]).await?;
//! }
//! transaction.commit().await?;
//! // Now commit the offset.
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use tokio_postgres::{
    Error, GenericClient, Row,
    error::SqlState,
    types::{ToSql, Type},
};

use crate::postgres::quote;

/// The inbox of one consumer, in the database of its effects. Holds no connection: cheap to make and to share.
#[derive(Clone, Debug)]
pub struct Inbox {
    consumer: String,
    /// Quoted.
    schema: String,
}

/// What a consumer has been handed, ever. Claims that were pruned count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that were handed to it for the first time.
    pub claimed: u64,
    /// Duplicates of them that came later.
    pub suppressed: u64,
}

impl Stats {
    /// Duplicates among all that was handed to it, 0 to 1; none before the first.
    pub fn suppression_rate(self) -> Option<f64> {
        let all = self.claimed + self.suppressed;
        (all > 0).then(|| self.suppressed as f64 / all as f64)
    }
}

/// Why the inbox gave no answer. But for that of [`Inbox::prune`], the transaction has failed with it.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// `serialization_failure` or `deadlock_detected`: nothing is wrong, and nothing was claimed.
    #[error("another transaction was in the way: roll this one back and run it again")]
    Retry(#[source] Error),
    #[error(
        "schema {schema} of this database has no inbox, or hides it from this role: walpost setup --inbox makes it, and grant walpost_consume to the role"
    )]
    Missing { schema: String, source: Error },
    #[error("this role may not use the inbox in schema {schema}: grant walpost_consume to it")]
    Forbidden { schema: String, source: Error },
    /// No id, an id that is too long, or a position that is none.
    #[error("the inbox of consumer {consumer:?} does not take this id, aggregate or position: {constraint} is not so")]
    Invalid { consumer: String, constraint: String, source: Error },
    /// Claims that the topic may still hand out again would be deleted.
    #[error("claims of consumer {consumer:?} are not pruned: {reason}")]
    NotPruned { consumer: String, reason: String, source: Error },
    #[error("the inbox of consumer {consumer:?} failed")]
    Sql { consumer: String, source: Error },
}

impl InboxError {
    /// The same transaction may succeed when it is run again from its beginning.
    pub fn is_retriable(&self) -> bool {
        matches!(self, InboxError::Retry(_))
    }
}

impl Inbox {
    /// Of this consumer, in schema `walpost`. A consumer is whatever has its effects once: a consumer group, as a rule.
    pub fn new(consumer: impl Into<String>) -> Inbox {
        Inbox { consumer: consumer.into(), schema: quote::ident("walpost") }
    }

    /// In another schema, as the catalog holds its name.
    #[must_use]
    pub fn in_schema(self, schema: &str) -> Inbox {
        Inbox { schema: quote::ident(schema), ..self }
    }

    /// True once for each event: the first time, if this transaction commits. False for a duplicate, also inside one transaction.
    /// Where another transaction has claimed the event and not ended, waits for its end.
    ///
    /// `transaction` is the one that has the effect. On a bare client the claim is a transaction by itself, and an effect
    /// that fails after it is lost.
    pub async fn claim(&self, transaction: &impl GenericClient, event_id: &str) -> Result<bool, InboxError> {
        self.ask(transaction, "inbox_claim($1, $2)", &[(&event_id, Type::TEXT)]).await
    }

    /// True where the position (header `position` of the record) is newer than the last one of this aggregate, whose it then
    /// is. Waits as [`claim`](Inbox::claim) does.
    pub async fn advance(
        &self,
        transaction: &impl GenericClient,
        aggregate: &str,
        position: &str,
    ) -> Result<bool, InboxError> {
        self.ask(transaction, "inbox_advance($1, $2, $3)", &[(&aggregate, Type::TEXT), (&position, Type::TEXT)]).await
    }

    /// What this consumer has been handed. Counts its rows.
    pub async fn stats(&self, client: &impl GenericClient) -> Result<Stats, InboxError> {
        let statement = format!("select claimed, suppressed from {}.inbox_stats where consumer = $1", self.schema);
        let row = client.query_typed_opt(&statement, &[(&self.consumer, Type::TEXT)]).await;
        let count = |row: &Row, column| row.try_get::<_, i64>(column).map(|count| count.unsigned_abs());
        match row.map_err(|error| self.error(error))? {
            Some(row) => (|| Ok(Stats { claimed: count(&row, 0)?, suppressed: count(&row, 1)? }))()
                .map_err(|error| self.error(error)),
            None => Ok(Stats::default()),
        }
    }

    /// States for how long the topic may hand an event out again, in whole milliseconds. [`prune`](Inbox::prune) keeps claims as
    /// long.
    pub async fn state_retention(&self, client: &impl GenericClient, retention: Duration) -> Result<(), InboxError> {
        let retention = milliseconds(retention);
        let statement = format!("select {}.inbox_retention($1, $2 * interval '1 ms')", self.schema);
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&self.consumer, Type::TEXT), (&retention, Type::FLOAT8)];
        client.query_typed(&statement, &parameters).await.map_err(|error| self.error(error))?;
        Ok(())
    }

    /// Adds up duplicates, then deletes claims that are older, in batches that each commit by themselves. Returns how many rows
    /// that were: claims, and duplicates of full batches. Refuses to delete claims below the stated retention, and where none is
    /// stated: [`InboxError::NotPruned`] says what to do. To force it is for SQL.
    pub async fn prune(&self, client: &tokio_postgres::Client, older_than: Duration) -> Result<u64, InboxError> {
        let older_than = milliseconds(older_than);
        let statement = format!("select {}.inbox_prune($1, $2 * interval '1 ms')", self.schema);
        let mut pruned = 0;
        loop {
            let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                [(&self.consumer, Type::TEXT), (&older_than, Type::FLOAT8)];
            let row = client.query_typed_one(&statement, &parameters).await.map_err(|error| self.error(error))?;
            match row.try_get::<_, i64>(0).map_err(|error| self.error(error))? {
                0 => return Ok(pruned),
                batch => pruned += batch.unsigned_abs(),
            }
        }
    }

    async fn ask(
        &self,
        client: &impl GenericClient,
        call: &str,
        more: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<bool, InboxError> {
        let statement = format!("select {}.{call}", self.schema);
        let parameters = [&[(&self.consumer as &(dyn ToSql + Sync), Type::TEXT)], more].concat();
        let row = client.query_typed_one(&statement, &parameters).await.map_err(|error| self.error(error))?;
        row.try_get(0).map_err(|error| self.error(error))
    }

    fn error(&self, source: Error) -> InboxError {
        let (consumer, schema) = (self.consumer.clone(), self.schema.clone());
        let said = source.as_db_error();
        match source.code() {
            Some(code) if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) => {
                InboxError::Retry(source)
            }
            Some(code)
                if [SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME]
                    .contains(code) =>
            {
                InboxError::Missing { schema, source }
            }
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => InboxError::Forbidden { schema, source },
            Some(&SqlState::CHECK_VIOLATION) => {
                let constraint = said.and_then(|said| said.constraint()).unwrap_or("a constraint").to_owned();
                InboxError::Invalid { consumer, constraint, source }
            }
            Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) => {
                let reason = said.map(|said| format!("{}. {}", said.message(), said.hint().unwrap_or_default()));
                InboxError::NotPruned { consumer, reason: reason.unwrap_or_default(), source }
            }
            Some(_) | None => InboxError::Sql { consumer, source },
        }
    }
}

/// Exact up to 285,000 years.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_millis() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_something_to_be_of() {
        assert_eq!(Stats::default().suppression_rate(), None);
        assert_eq!(Stats { claimed: 3, suppressed: 1 }.suppression_rate(), Some(0.25));
    }

    #[test]
    fn a_schema_is_quoted_where_it_must_be() {
        assert_eq!(Inbox::new("c").schema, "walpost");
        assert_eq!(Inbox::new("c").in_schema("My \"App\"").schema, "\"My \"\"App\"\"\"");
    }
}
