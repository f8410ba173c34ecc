//! Why the server refused, and what mends it.
//!
//! Messages of the server may be in any language, so a refusal is recognised by its SQLSTATE, by the server function
//! that raised it, by names that are never translated (settings, slots, publications), and by what was being done.

use super::{error::ErrorKind, server_error::ServerError};

/// What was being done when the server refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doing<'a> {
    /// Logging in.
    Login { user: &'a str, database: &'a str, replication: bool },
    /// A command or query of an open session.
    Command,
    /// `IDENTIFY_SYSTEM`, which only a walsender understands.
    Identify,
    /// `START_REPLICATION`.
    Start { slot: &'a str },
    /// Receiving the stream.
    Streaming { slot: &'a str, publications: &'a [String] },
}

/// A refusal that is understood. The message names the remedy; the server's own words are the error's source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// PgBouncer and its like.
    #[error(
        "a connection pooler seems to stand between walpost and PostgreSQL and carries no replication: use a direct address for replication"
    )]
    Pooler,
    /// The same, for an SQL connection.
    #[error(
        "a connection pooler stands between walpost and PostgreSQL and does not take a setting of the connection string: leave it out (options, as a rule), or use a direct address"
    )]
    PoolerSetting,
    /// 28P01.
    #[error(
        "PostgreSQL rejects the password of role {user}: correct it in the connection string, PGPASSWORD or the passfile, or ALTER ROLE {} PASSWORD",
        quoted_identifier(.user)
    )]
    Password { user: String },
    /// 28000 from the host-based authentication.
    #[error(
        "pg_hba.conf does not admit role {user} to database {database} from this address in this way: add a line such as \"hostssl {database} {user} <address> scram-sha-256\" and SELECT pg_reload_conf(), or connect as the server says"
    )]
    HostBasedAuthentication { user: String, database: String },
    /// Another 28000.
    #[error(
        "PostgreSQL does not let role {user} log in: CREATE ROLE or ALTER ROLE {} LOGIN",
        quoted_identifier(.user)
    )]
    Login { user: String },
    /// 42501 at the start of a walsender.
    #[error(
        "role {user} may not replicate: ALTER ROLE {} REPLICATION (on a managed server, grant the provider's replication role)",
        quoted_identifier(.user)
    )]
    ReplicationRight { user: String },
    /// 42501 of the database.
    #[error(
        "role {user} may not connect to database {database}: GRANT CONNECT ON DATABASE {} TO {}",
        quoted_identifier(.database),
        quoted_identifier(.user)
    )]
    ConnectRight { user: String, database: String },
    /// 42501 later.
    #[error("the role lacks a right that this needs: walpost check lists what is missing, each with its GRANT")]
    Right,
    /// 3D000.
    #[error("database {database} does not exist: correct the connection string or CREATE DATABASE {}", quoted_identifier(.database))]
    Database { database: String },
    /// 57P04.
    #[error("the database was dropped")]
    DatabaseDropped,
    /// 53300.
    #[error("PostgreSQL has no connection left for walpost: close others, or raise max_connections and restart")]
    Connections,
    /// 53300 about walsenders.
    #[error("PostgreSQL has no walsender left for walpost: raise max_wal_senders and restart")]
    WalSenders,
    /// 53400.
    #[error(
        "PostgreSQL has no replication slot left: drop an unused one (SELECT pg_drop_replication_slot(name)) or raise max_replication_slots and restart"
    )]
    Slots,
    /// 57P03.
    #[error("PostgreSQL accepts no connections now: it is starting, recovering or shutting down")]
    NotAccepting,
    /// 57P01.
    #[error("PostgreSQL ended the session: it shuts down, or an administrator terminated it")]
    Terminated,
    /// 57P02.
    #[error("PostgreSQL ended the session: another server process crashed")]
    Crashed,
    /// 55006.
    #[error("replication slot {slot} is in use{}", .pid.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    SlotInUse { slot: String, pid: Option<i32> },
    /// 42704 at the start.
    #[error("replication slot {slot} does not exist: SELECT pg_create_logical_replication_slot({}, 'pgoutput'), or walpost setup", quoted_literal(.slot))]
    SlotMissing { slot: String },
    /// The slot is another's.
    #[error("replication slot {slot} cannot carry this stream: it {what}")]
    SlotUnsuitable { slot: String, what: String },
    /// The slot's WAL is gone.
    #[error(
        "replication slot {slot} is invalidated{}: events after its confirmed position can no longer be streamed; drop it (SELECT pg_drop_replication_slot({})) and create it anew",
        .reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default(),
        quoted_literal(.slot)
    )]
    SlotInvalidated { slot: String, reason: Option<String> },
    /// 42704 in the stream.
    #[error(
        "publication {publications} did not exist when a change that slot {slot} still has to decode was made: the publication must be older than the slot's position; either create both anew, the publication first, or skip what the slot holds with SELECT pg_replication_slot_advance({}, pg_current_wal_lsn()), which loses the events in between, and walpost run --accept-gap once",
        quoted_literal(.slot)
    )]
    PublicationMissing { publications: String, slot: String },
    /// 55000 about the setting.
    #[error("wal_level is not logical: ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL")]
    WalLevel,
    /// 58P01.
    #[error(
        "PostgreSQL no longer has the log that is asked for: drop the slot and let walpost setup create it anew; what was not sent is in the table"
    )]
    WalRemoved,
    /// 22P05, 22021.
    #[error(
        "PostgreSQL cannot convert a value to UTF-8: the stream stands before the transaction that holds it; to go on without that transaction's events, pg_replication_slot_advance the slot past its commit, and walpost run --accept-gap once"
    )]
    Unconvertible,
    /// More than a palloc can hold.
    #[error(
        "PostgreSQL cannot send a row that is larger than 1 GiB in its text form: to go on without that transaction's events, pg_replication_slot_advance the slot past its commit, and walpost run --accept-gap once"
    )]
    RowTooLarge,
    /// Anything else.
    #[error("PostgreSQL reports an error")]
    Other,
}

impl Refusal {
    /// Recognises an error of the server.
    pub(crate) fn recognise(server: &ServerError, doing: Doing<'_>) -> Refusal {
        match doing {
            Doing::Login { user, database, replication } => login(server, user, database, replication),
            Doing::Identify if matches!(&*server.sqlstate, "42601" | "08P01" | "0A000") => Some(Refusal::Pooler),
            Doing::Start { slot } => start(server, slot),
            Doing::Streaming { slot, publications } => streaming(server, slot, publications),
            Doing::Command | Doing::Identify => None,
        }
        .unwrap_or_else(|| anywhere(server))
    }

    /// Whether trying again can help.
    pub(crate) fn kind(&self, server: &ServerError) -> ErrorKind {
        match self {
            Refusal::SlotInUse { pid, .. } => ErrorKind::SlotInUse { pid: *pid },
            Refusal::Terminated => ErrorKind::ServerStopping,
            Refusal::Connections | Refusal::WalSenders | Refusal::NotAccepting | Refusal::Crashed => {
                ErrorKind::Transient
            }
            Refusal::Pooler
            | Refusal::PoolerSetting
            | Refusal::Password { .. }
            | Refusal::HostBasedAuthentication { .. }
            | Refusal::Login { .. }
            | Refusal::ReplicationRight { .. }
            | Refusal::ConnectRight { .. }
            | Refusal::Right
            | Refusal::Database { .. }
            | Refusal::DatabaseDropped
            | Refusal::Slots
            | Refusal::SlotMissing { .. }
            | Refusal::SlotUnsuitable { .. }
            | Refusal::SlotInvalidated { .. }
            | Refusal::PublicationMissing { .. }
            | Refusal::WalLevel
            | Refusal::WalRemoved
            | Refusal::Unconvertible
            | Refusal::RowTooLarge => ErrorKind::Permanent,
            // Connection, resources, locks, intervention, input and output, internal errors.
            Refusal::Other => {
                let passing = ["08", "40", "53", "55P03", "57", "58", "XX000"];
                let transient = passing.iter().any(|class| server.is_class(class));
                if transient { ErrorKind::Transient } else { ErrorKind::Permanent }
            }
        }
    }
}

fn login(server: &ServerError, user: &str, database: &str, replication: bool) -> Option<Refusal> {
    let (user, database) = (user.to_owned(), database.to_owned());
    Some(match &*server.sqlstate {
        // "unsupported startup parameter", a message that only poolers have. Some send it as 08P01, some with no code.
        _ if server.message.contains("unsupported startup parameter") => {
            if replication {
                Refusal::Pooler
            } else {
                Refusal::PoolerSetting
            }
        }
        "28P01" => Refusal::Password { user },
        "28000" if server.is_from("ClientAuthentication") => Refusal::HostBasedAuthentication { user, database },
        "28000" => Refusal::Login { user },
        "42501" if server.is_from("CheckMyDatabase") => Refusal::ConnectRight { user, database },
        "42501" if replication => Refusal::ReplicationRight { user },
        "3D000" => Refusal::Database { database },
        "55000" if server.message.contains("wal_level") => Refusal::WalLevel,
        _ => return None,
    })
}

/// What the error alone can tell; the session then asks the catalog about the slot.
fn start(server: &ServerError, slot: &str) -> Option<Refusal> {
    let slot = slot.to_owned();
    Some(match &*server.sqlstate {
        "55006" => Refusal::SlotInUse { pid: only_number(&server.message.replace(&slot, "")), slot },
        "42704" => Refusal::SlotMissing { slot },
        "55000" if server.message.contains("wal_level") => Refusal::WalLevel,
        _ => return None,
    })
}

fn streaming(server: &ServerError, slot: &str, publications: &[String]) -> Option<Refusal> {
    let slot = slot.to_owned();
    match &*server.sqlstate {
        // 14 to 17 raise an error; 18 only warns, and would leave the changes out.
        "42704" | "55000" if server.is_from("get_publication_oid") || server.is_from("LoadPublications") => {
            let named = publications.iter().find(|publication| server.message.contains(&***publication));
            let publications = named.cloned().unwrap_or_else(|| publications.join(", "));
            Some(Refusal::PublicationMissing { publications, slot })
        }
        // The WAL limit was passed while streaming: the server terminates the walsender and invalidates the slot next.
        _ => None,
    }
}

fn anywhere(server: &ServerError) -> Refusal {
    match &*server.sqlstate {
        "22P05" | "22021" => Refusal::Unconvertible,
        "42501" => Refusal::Right,
        "53300" if server.message.contains("max_wal_senders") => Refusal::WalSenders,
        "53300" => Refusal::Connections,
        "53400" if server.is_from("ReplicationSlotCreate") => Refusal::Slots,
        "55000" if server.message.contains("wal_level") => Refusal::WalLevel,
        "57P01" => Refusal::Terminated,
        "57P02" => Refusal::Crashed,
        "57P03" => Refusal::NotAccepting,
        "57P04" => Refusal::DatabaseDropped,
        "58P01" => Refusal::WalRemoved,
        // Raised as an internal error, and those are not translated.
        "XX000" if server.message.contains("invalid memory alloc request size") => Refusal::RowTooLarge,
        "54000" if server.is_from("enlargeStringInfo") => Refusal::RowTooLarge,
        _ => Refusal::Other,
    }
}

/// The number in a text that holds just one.
fn only_number(text: &str) -> Option<i32> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let first = numbers.next()?.parse().ok()?;
    numbers.next().is_none().then_some(first)
}

/// `"name"`, its quotes doubled.
pub(crate) fn quoted_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `'text'`, its quotes doubled.
pub(crate) fn quoted_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(sqlstate: &str, message: &str, routine: &str) -> ServerError {
        ServerError {
            severity: "FATAL".into(),
            sqlstate: sqlstate.into(),
            message: message.into(),
            routine: Some(routine.into()),
            ..ServerError::default()
        }
    }

    const LOGIN: Doing<'_> = Doing::Login { user: "U", database: "d", replication: true };
    const START: Doing<'_> = Doing::Start { slot: "s1" };

    #[test]
    fn a_refusal_is_recognised_in_any_language() {
        let publications = ["p".to_owned(), "autre".to_owned()];
        let streaming = Doing::Streaming { slot: "s1", publications: &publications };
        let slot = || "s1".to_owned();
        let (user, database) = (|| "U".to_owned(), || "d".to_owned());
        for (error, doing, expected) in [
            (server("28P01", "…", "auth_failed"), LOGIN, Refusal::Password { user: user() }),
            (
                server("28000", "…", "ClientAuthentication"),
                LOGIN,
                Refusal::HostBasedAuthentication { user: user(), database: database() },
            ),
            (server("28000", "…", "InitializeSessionUserId"), LOGIN, Refusal::Login { user: user() }),
            (server("42501", "…", "InitPostgres"), LOGIN, Refusal::ReplicationRight { user: user() }),
            (
                server("42501", "…", "CheckMyDatabase"),
                LOGIN,
                Refusal::ConnectRight { user: user(), database: database() },
            ),
            (server("3D000", "…", "InitPostgres"), LOGIN, Refusal::Database { database: database() }),
            (server("08P01", "unsupported startup parameter: replication", ""), LOGIN, Refusal::Pooler),
            (server("42601", "…", "scanner_yyerror"), Doing::Identify, Refusal::Pooler),
            (server("53300", "… « max_wal_senders » (10)", "InitProcess"), LOGIN, Refusal::WalSenders),
            (server("53300", "…", "InitProcess"), LOGIN, Refusal::Connections),
            (server("53400", "…", "ReplicationSlotCreate"), Doing::Command, Refusal::Slots),
            (server("57P03", "…", "ProcessStartupPacket"), LOGIN, Refusal::NotAccepting),
            (server("57P01", "…", "ProcessInterrupts"), streaming, Refusal::Terminated),
            (
                server("55006", "« s1 » PID 77", "ReplicationSlotAcquire"),
                START,
                Refusal::SlotInUse { slot: slot(), pid: Some(77) },
            ),
            (server("42704", "…", "ReplicationSlotAcquire"), START, Refusal::SlotMissing { slot: slot() }),
            (server("55000", "… « wal_level »", "CheckLogicalDecodingRequirements"), START, Refusal::WalLevel),
            (
                server("42704", "« autre »", "get_publication_oid"),
                streaming,
                Refusal::PublicationMissing { publications: "autre".into(), slot: slot() },
            ),
            (server("58P01", "…", "XLogFileReadAnyTLI"), streaming, Refusal::WalRemoved),
            (server("22P05", "…", "report_untranslatable_char"), streaming, Refusal::Unconvertible),
            (server("XX000", "invalid memory alloc request size 1", ""), streaming, Refusal::RowTooLarge),
            (server("42P01", "…", ""), Doing::Command, Refusal::Other),
        ] {
            assert_eq!(Refusal::recognise(&error, doing), expected, "{error}");
        }
    }

    #[test]
    fn trying_again_is_worth_it_only_where_time_can_mend() {
        let kind = |sqlstate: &str, doing| {
            let error = server(sqlstate, "slot \"s1\" is active for PID 4242", "");
            Refusal::recognise(&error, doing).kind(&error)
        };
        assert_eq!(kind("55006", START), ErrorKind::SlotInUse { pid: Some(4242) });
        assert_eq!(kind("57P01", Doing::Command), ErrorKind::ServerStopping);
        assert_eq!(kind("57P03", LOGIN), ErrorKind::Transient);
        assert_eq!(kind("53200", Doing::Command), ErrorKind::Transient);
        assert_eq!(kind("28P01", LOGIN), ErrorKind::Permanent);
        assert_eq!(kind("42P01", Doing::Command), ErrorKind::Permanent);
    }

    #[test]
    fn names_are_quoted_in_the_statements_offered() {
        let refusal = Refusal::ReplicationRight { user: "we\"ird".into() };
        assert!(refusal.to_string().contains("ALTER ROLE \"we\"\"ird\" REPLICATION"), "{refusal}");
        let refusal = Refusal::SlotMissing { slot: "a'b".into() };
        assert!(refusal.to_string().contains("'a''b'"), "{refusal}");
    }
}
