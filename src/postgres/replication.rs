//! A walsender session in command mode: identification, replication commands, ordinary queries, the start of the
//! stream.
//!
//! Protocol: <https://www.postgresql.org/docs/current/protocol-replication.html>.

use postgres_protocol::message::{backend::Message, frontend};
use secrecy::SecretString;

use super::{
    connection::{self, ServerState, Session},
    conninfo::ConnInfo,
    error::Error,
    refusal::{Doing, Refusal, quoted_identifier, quoted_literal},
    server_error::ServerError,
    socket::Socket,
    startup::{self, Reports},
    stream::Stream,
    wire::{COPY_BOTH_RESPONSE, Wire},
};
use crate::pipeline::lsn::Lsn;

/// The oldest version whose walsender does all that is asked of it here.
const VERSION_MIN: u32 = 140_000;

/// What `IDENTIFY_SYSTEM` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Made by initdb, kept by every physical copy.
    pub system_identifier: String,
    /// Raised by each promotion.
    pub timeline: u32,
    /// How far the log is on disk.
    pub wal_flush: Lsn,
    /// The database of the session.
    pub database: String,
}

/// What `START_REPLICATION` is to send.
#[derive(Clone, Copy, Debug)]
pub struct StartRequest<'a> {
    /// The slot's name.
    pub slot: &'a str,
    /// The publications' names, as SQL would hold them unquoted.
    pub publications: &'a [&'a str],
    /// Where to begin; the server moves what lies before the slot's confirmed position up to it, silently.
    pub start: Lsn,
    /// Whether logical decoding messages are wanted.
    pub messages: bool,
}

/// A slot that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSlot {
    /// The log that it has begins here.
    pub consistent_point: Lsn,
    /// What is visible in it was committed before that. It can be imported until the next command of the session that
    /// made the slot.
    pub snapshot: String,
}

/// A walsender session in command mode.
pub struct Replication {
    at: ConnInfo,
    wire: Wire,
    reports: Reports,
    version: u32,
}

impl Replication {
    /// Connects and logs in.
    pub async fn connect(at: &ConnInfo) -> Result<Replication, Error> {
        connection::open(at).await
    }

    /// `IDENTIFY_SYSTEM`.
    pub async fn identify_system(&mut self) -> Result<Identity, Error> {
        let rows = self.answer("IDENTIFY_SYSTEM", Doing::Identify).await?;
        let incomplete = || Error::protocol("the answer to IDENTIFY_SYSTEM is incomplete");
        let row = <[Option<String>; 4]>::try_from(rows.into_iter().next().ok_or_else(incomplete)?);
        let Ok([Some(system_identifier), Some(timeline), Some(wal_flush), Some(database)]) = row else {
            return Err(incomplete());
        };
        Ok(Identity {
            system_identifier,
            timeline: timeline.parse().map_err(|_| incomplete())?,
            wal_flush: wal_flush.parse().map_err(|_| incomplete())?,
            database,
        })
    }

    /// `CREATE_REPLICATION_SLOT … LOGICAL pgoutput` with an exported snapshot. The server first waits for every
    /// transaction that is writing to end. `slot` is a legal slot name. With `failover` (17+) standbys may copy it.
    pub async fn create_slot(&mut self, slot: &str, failover: bool) -> Result<NewSlot, Error> {
        let export = match self.version {
            ..150_000 => "EXPORT_SNAPSHOT",
            _ if failover => "(SNAPSHOT 'export', FAILOVER true)",
            _ => "(SNAPSHOT 'export')",
        };
        let sql = format!("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput {export}", quoted_identifier(slot));
        let rows = self.query(&sql).await?;
        let incomplete = || Error::protocol("the answer to CREATE_REPLICATION_SLOT is incomplete");
        let row = <[Option<String>; 4]>::try_from(rows.into_iter().next().ok_or_else(incomplete)?);
        let Ok([_, Some(consistent_point), Some(snapshot), _]) = row else { return Err(incomplete()) };
        Ok(NewSlot { consistent_point: consistent_point.parse().map_err(|_| incomplete())?, snapshot })
    }

    /// `ALTER_REPLICATION_SLOT` (17+): standbys may copy the slot from now on.
    pub async fn let_fail_over(&mut self, slot: &str) -> Result<(), Error> {
        self.query(&format!("ALTER_REPLICATION_SLOT {} (FAILOVER true)", quoted_identifier(slot))).await.map(|_| ())
    }

    /// `TIMELINE_HISTORY`: the timelines before this one, each with the position at which it was left.
    pub async fn timeline_history(&mut self, timeline: u32) -> Result<Vec<(u32, Lsn)>, Error> {
        let rows = self.answer(&format!("TIMELINE_HISTORY {timeline}"), Doing::Command).await?;
        let content = rows.into_iter().next().and_then(|row| row.into_iter().nth(1)?);
        let unreadable = || Error::protocol("the answer to TIMELINE_HISTORY cannot be read");
        parse_history(&content.ok_or_else(unreadable)?).ok_or_else(unreadable)
    }

    /// Sends a replication command or SQL by the simple protocol; gives the rows of all its results, as text.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        self.answer(sql, Doing::Command).await
    }

    /// The way to this very server, of all that the connection string names.
    pub fn server(&self) -> &ConnInfo {
        &self.at
    }

    /// The server's version as `server_version_num` has it: 150018 for 15.18.
    pub fn server_version(&self) -> u32 {
        self.version
    }

    /// The walsender's process.
    pub fn backend_pid(&self) -> i32 {
        self.reports.backend_pid
    }

    /// `START_REPLICATION SLOT … LOGICAL …` with pgoutput's protocol 1, which sends each transaction whole and after its
    /// commit.
    pub async fn start(mut self, request: &StartRequest<'_>) -> Result<Stream, Error> {
        self.send(&start_command(request))?;
        loop {
            let (tag, body) = self.wire.message().await?;
            if tag == COPY_BOTH_RESPONSE {
                let publications = request.publications.iter().map(|name| (*name).to_owned()).collect();
                return Ok(Stream::new(self.wire, request.slot.to_owned(), publications));
            }
            match self.wire.parsed(tag, body)? {
                Message::NoticeResponse(_) | Message::ParameterStatus(_) => {}
                Message::ErrorResponse(body) => {
                    let server = ServerError::from_fields(body.fields());
                    return Err(self.explained(server, request.slot).await);
                }
                _ => return Err(Error::protocol("START_REPLICATION is answered by neither a stream nor an error")),
            }
        }
    }

    /// Closes the session.
    pub async fn close(self) {
        self.wire.terminate().await;
    }

    /// Why the stream was refused. Several causes share a SQLSTATE, and the message may be in any language: the catalog
    /// tells.
    async fn explained(mut self, server: ServerError, slot: &str) -> Error {
        let mut refusal = Refusal::recognise(&server, Doing::Start { slot });
        let unclear = matches!(refusal, Refusal::Other | Refusal::SlotInUse { pid: None, .. });
        if unclear && self.until_ready().await.is_ok() {
            if let Ok(Some(found)) = self.slot_trouble(slot).await {
                refusal = found;
            }
        }
        Error::Refused { refusal, server: Box::new(server) }
    }

    async fn slot_trouble(&mut self, slot: &str) -> Result<Option<Refusal>, Error> {
        let reason = match self.version {
            ..160_000 => "null",
            160_000..170_000 => "case when conflicting then 'conflict with recovery' end",
            170_000.. => "invalidation_reason",
        };
        let sql = format!(
            "select slot_type, plugin, database = pg_catalog.current_database(), active_pid, wal_status, {reason} \
             from pg_catalog.pg_replication_slots where slot_name = {}",
            quoted_literal(slot)
        );
        let rows = self.query(&sql).await?;
        let slot = slot.to_owned();
        let Some(row) = rows.into_iter().next() else { return Ok(Some(Refusal::SlotMissing { slot })) };
        let Ok([kind, plugin, here, pid, status, reason]) = <[Option<String>; 6]>::try_from(row) else {
            return Ok(None);
        };
        let unsuitable = |what: String| Some(Refusal::SlotUnsuitable { slot: slot.clone(), what });
        Ok(if kind.as_deref() == Some("physical") {
            unsuitable("is a physical one".to_owned())
        } else if here.as_deref() != Some("t") {
            unsuitable("belongs to another database".to_owned())
        } else if plugin.as_deref() != Some("pgoutput") {
            unsuitable(format!("decodes with {} and not with pgoutput", plugin.unwrap_or_default()))
        } else if status.as_deref() == Some("lost") || reason.is_some() {
            Some(Refusal::SlotInvalidated { slot, reason })
        } else {
            pid.map(|pid| Refusal::SlotInUse { slot, pid: pid.parse().ok() })
        })
    }

    async fn answer(&mut self, sql: &str, doing: Doing<'_>) -> Result<Vec<Vec<Option<String>>>, Error> {
        self.send(sql)?;
        let mut rows = Vec::new();
        loop {
            let (tag, body) = self.wire.message().await?;
            match self.wire.parsed(tag, body)? {
                Message::DataRow(body) => rows.push(columns(&body)?),
                Message::ErrorResponse(body) => {
                    let error = Error::refused(ServerError::from_fields(body.fields()), doing);
                    // A fatal error closes the connection; the error says more than that.
                    let _ = self.until_ready().await;
                    return Err(error);
                }
                Message::ReadyForQuery(_) => return Ok(rows),
                Message::RowDescription(_)
                | Message::CommandComplete(_)
                | Message::EmptyQueryResponse
                | Message::NoticeResponse(_)
                | Message::ParameterStatus(_) => {}
                _ => return Err(Error::protocol("a message that answers no query")),
            }
        }
    }

    async fn until_ready(&mut self) -> Result<(), Error> {
        loop {
            let (tag, body) = self.wire.message().await?;
            if let Message::ReadyForQuery(_) = self.wire.parsed(tag, body)? {
                return Ok(());
            }
        }
    }

    fn send(&mut self, sql: &str) -> Result<(), Error> {
        let mut message = bytes::BytesMut::new();
        frontend::query(sql, &mut message)
            .map_err(|error| Error::protocol(format!("a command cannot be sent: {error}")))?;
        self.wire.queue(&message);
        Ok(())
    }
}

impl Session for Replication {
    async fn open(socket: Socket, at: &ConnInfo, password: Option<SecretString>) -> Result<Replication, Error> {
        let mut wire = Wire::new(socket);
        let reports = startup::log_in(&mut wire, at, password).await?;
        let version = version_number(reports.parameters.get("server_version").map(String::as_str))?;
        Ok(Replication { at: at.clone(), wire, reports, version })
    }

    fn reported(&self, parameter: &str) -> Option<&str> {
        self.reports.parameters.get(parameter).map(String::as_str)
    }

    async fn ask_state(&mut self) -> Result<ServerState, Error> {
        let rows = self.query(connection::STATE_SQL).await?;
        let is_true = |column: usize| rows.first().and_then(|row| row.get(column)?.as_deref()) == Some("t");
        Ok(ServerState { in_recovery: is_true(0), read_only: is_true(1) })
    }

    async fn close(self) {
        self.wire.terminate().await;
    }
}

fn start_command(request: &StartRequest<'_>) -> String {
    let publications: Vec<String> = request.publications.iter().map(|name| quoted_identifier(name)).collect();
    format!(
        "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {}{})",
        quoted_identifier(request.slot),
        request.start,
        quoted_literal(&publications.join(",")),
        if request.messages { ", messages 'true'" } else { "" },
    )
}

/// A history file: a timeline, where it was left, and why, on each line that is no comment.
fn parse_history(text: &str) -> Option<Vec<(u32, Lsn)>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split_ascii_whitespace();
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        })
        .collect()
}

fn columns(row: &postgres_protocol::message::backend::DataRowBody) -> Result<Vec<Option<String>>, Error> {
    use fallible_iterator::FallibleIterator;

    let malformed = || Error::protocol("a row is malformed");
    let ranges: Vec<_> = row.ranges().collect().map_err(|_| malformed())?;
    ranges
        .into_iter()
        .map(|range| {
            let Some(range) = range else { return Ok(None) };
            let bytes = row.buffer().get(range).ok_or_else(malformed)?;
            String::from_utf8(bytes.to_vec()).map(Some).map_err(|_| malformed())
        })
        .collect()
}

/// `15.18 (Debian …)`, `18beta1` as a number; too old is an error.
pub(super) fn version_number(reported: Option<&str>) -> Result<u32, Error> {
    let text = reported.ok_or_else(|| Error::protocol("the server does not tell its version"))?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse::<u32>().ok());
    let major = number().filter(|major| *major < 1000);
    let major = major.ok_or_else(|| Error::protocol("the server's version is no number"))?;
    // After a beta's name comes no minor version.
    let minor = if text.contains('.') { number().filter(|minor| *minor < 10_000).unwrap_or(0) } else { 0 };
    let version = major * 10_000 + minor;
    if version < VERSION_MIN { Err(Error::Version { version: text.to_owned() }) } else { Ok(version) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_both_parsers_that_read_them() {
        let request = StartRequest {
            slot: "walpost",
            publications: &["plain", "It's \"odd\""],
            start: Lsn(0x16_B374_D848),
            messages: true,
        };
        assert_eq!(
            start_command(&request),
            "START_REPLICATION SLOT \"walpost\" LOGICAL 16/B374D848 (proto_version '1', \
             publication_names '\"plain\",\"It''s \"\"odd\"\"\"', messages 'true')"
        );
        let without = start_command(&StartRequest { messages: false, publications: &["p"], ..request });
        assert!(without.ends_with("(proto_version '1', publication_names '\"p\"')"), "{without}");
    }

    #[test]
    fn a_history_file_tells_where_each_timeline_was_left() {
        let text = "1\t0/3000148\tno recovery target specified\n\n# by hand\n2\t0/50000A0\tbefore 2026-11-30\n";
        assert_eq!(parse_history(text), Some(vec![(1, Lsn(0x300_0148)), (2, Lsn(0x500_00A0))]));
        assert_eq!(parse_history("1"), None);
    }

    #[test]
    fn versions_are_numbers_from_14_on() {
        for (text, number) in [
            ("14.19", Some(140_019)),
            ("15.18 (Debian 15.18-0+deb12u1)", Some(150_018)),
            ("18.0", Some(180_000)),
            ("18beta1", Some(180_000)),
            ("19devel", Some(190_000)),
            ("13.22", None),
            ("9.6.24", None),
            ("unknown", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(version_number(Some(text)).ok(), number, "{text}");
        }
        assert!(version_number(None).is_err());
    }
}
