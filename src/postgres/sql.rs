//! Ordinary SQL: a tokio-postgres client over the socket that the project's own rules made.
//!
//! Host list, TLS, channel binding and timeouts are therefore those of the replication connection. Nothing but
//! `application_name` and the connection string's own `options` is asked of the session, because a pooler in between
//! may refuse more.

use std::{
    future::{self, Ready},
    ops::Deref,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::task::AbortHandle;
use tokio_postgres::{
    Client, Config,
    config::{ChannelBinding, SslMode, SslNegotiation},
    tls::TlsConnect,
};

use super::{
    connection::{self, ServerState, Session},
    conninfo::{self, ConnInfo},
    error::Error,
    refusal::Doing,
    replication::version_number,
    socket::Socket,
};

/// An SQL session. Dropping it ends the session.
pub struct Sql {
    client: Client,
    task: AbortHandle,
    reports: [(&'static str, Option<String>); 3],
    version: u32,
}

/// Connects and logs in.
pub async fn connect(at: &ConnInfo) -> Result<Sql, Error> {
    connection::open(at).await
}

impl Sql {
    /// The server's version as `server_version_num` has it: 150018 for 15.18.
    pub fn server_version(&self) -> u32 {
        self.version
    }

    /// 15 for 15.18.
    pub fn major(&self) -> i32 {
        i32::try_from(self.version / 10_000).unwrap_or(i32::MAX)
    }

    /// Ends the session now, whatever it is at, without a goodbye. Dropping it waits for the end of a COPY.
    pub fn abort(&self) {
        self.task.abort();
    }
}

impl Deref for Sql {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Session for Sql {
    async fn open(socket: Socket, at: &ConnInfo, password: Option<SecretString>) -> Result<Sql, Error> {
        let mut config = Config::new();
        // The socket is connected, with TLS or without: "direct" keeps the client from asking for TLS once more.
        config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        config.user(&*at.user).dbname(&*at.database).application_name(&*at.application_name);
        config.channel_binding(match at.channel_binding {
            conninfo::ChannelBinding::Disable => ChannelBinding::Disable,
            conninfo::ChannelBinding::Prefer => ChannelBinding::Prefer,
            conninfo::ChannelBinding::Require => ChannelBinding::Require,
        });
        if let Some(options) = &at.options {
            config.options(&**options);
        }
        if let Some(password) = password {
            config.password(password.expose_secret());
        }
        let connected = config.connect_raw(socket, Connected).await;
        let (client, connection) = connected.map_err(|error| login_error(error, at))?;
        let report = |name| (name, connection.parameter(name).map(str::to_owned));
        let reports = ["server_version", "in_hot_standby", "default_transaction_read_only"].map(report);
        let version = version_number(reports[0].1.as_deref())?;
        // It ends with its client, with a goodbye; when it ends before, every query fails with "connection closed".
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "SQL connection ended");
            }
        });
        Ok(Sql { client, task: task.abort_handle(), reports, version })
    }

    fn reported(&self, parameter: &str) -> Option<&str> {
        self.reports.iter().find(|(name, _)| *name == parameter)?.1.as_deref()
    }

    async fn ask_state(&mut self) -> Result<ServerState, Error> {
        let messages = self.client.simple_query(connection::STATE_SQL).await?;
        let row = messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let is_true = |column: usize| row.and_then(|row| row.get(column)) == Some("t");
        Ok(ServerState { in_recovery: is_true(0), read_only: is_true(1) })
    }

    async fn close(self) {}
}

/// Runs `work` in a transaction whose commit waits for the disk whatever the database's default: what it decides is
/// acted on. A process that stops in the middle of it holds its locks for five seconds at most. Not cancel safe: the session is left in the transaction.
pub(crate) async fn durably<T, E: Into<Error>>(
    client: &Client,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Error> {
    client
        .batch_execute("begin; set local synchronous_commit = on; set local idle_in_transaction_session_timeout = '5s'")
        .await?;
    match work.await {
        Ok(done) => {
            client.batch_execute("commit").await?;
            Ok(done)
        }
        Err(error) => {
            // A rollback that fails is the end of the session, which rolls back too.
            client.batch_execute("rollback").await.ok();
            Err(error.into())
        }
    }
}

/// The client has no codes for what it finds wrong itself, only words.
fn login_error(error: tokio_postgres::Error, at: &ConnInfo) -> Error {
    let words = std::error::Error::source(&error).map(ToString::to_string);
    match words.as_deref() {
        Some("password missing") => Error::NoPassword { user: at.user.clone() },
        Some("server did not use channel binding") => Error::ChannelBinding,
        _ => Error::from_sql(error, Doing::Login { user: &at.user, database: &at.database, replication: false }),
    }
}

/// "Connects" TLS over a socket that has it already, or is to do without.
struct Connected;

impl TlsConnect<Socket> for Connected {
    type Stream = Socket;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Ready<Result<Socket, Self::Error>>;

    fn connect(self, socket: Socket) -> Self::Future {
        future::ready(Ok(socket))
    }
}
