//! PostgreSQL: the replication connection, ordinary SQL, and the errors of both.

pub mod conninfo;
