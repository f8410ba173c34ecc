//! PostgreSQL: the replication connection, ordinary SQL, and the errors of both.
//!
//! [`conninfo`] reads connection strings; [`connection`] walks their hosts and makes a [`socket`] by the rules of
//! [`tls`], over which either a [`replication`] session logs in ([`startup`]) and becomes a [`stream`], or an [`sql`]
//! session. [`refusal`] knows what the server's errors mean and what mends them. [`server`], [`table`], [`publication`] and
//! [`slot`] read the catalog; [`schema`] has the SQL of `sql/` under the configured names. [`dead_letter`] is the table of
//! what could not be delivered, [`progress`] the one that says what is published.

pub mod attempt;
pub mod attributes;
pub mod bookmark;
pub mod claimed;
mod connection;
pub mod conninfo;
pub mod coverage;
pub mod dead_letter;
pub mod error;
pub mod mark;
pub mod progress;
pub mod publication;
pub mod published;
pub mod quote;
pub mod refusal;
pub mod replication;
pub mod rows;
pub mod schema;
pub mod server;
pub mod server_error;
pub mod slot;
pub mod socket;
pub mod sql;
mod startup;
pub mod stream;
pub mod table;
pub mod tls;
pub mod unproven;
mod wire;

pub use error::{Error, ErrorKind};
