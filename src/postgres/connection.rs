//! From a connection string to a session: hosts, addresses, TLS and its fallbacks, the bound in time, the kind of
//! server. One implementation for the replication and the SQL connection, so that their rules are the same.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use secrecy::SecretString;

use super::{
    conninfo::{ConnInfo, LoadBalance, Target, TargetSession, TlsMode},
    error::{Error, ErrorKind},
    refusal::Refusal,
    socket::{self, Address, Socket},
    tls,
};

/// A session that is opened over a connected socket; its two kinds are replication and SQL.
pub(super) trait Session: Sized + Send {
    /// Logs in; `at` leads to the server behind the socket and to no other.
    fn open(
        socket: Socket,
        at: &ConnInfo,
        password: Option<SecretString>,
    ) -> impl Future<Output = Result<Self, Error>> + Send;

    /// A setting that the server reported when the session began.
    fn reported(&self, parameter: &str) -> Option<&str>;

    /// Whether the server is in recovery, and whether its transactions may not write, where it did not report it.
    fn ask_state(&mut self) -> impl Future<Output = Result<ServerState, Error>> + Send;

    /// Ends a session that is not wanted.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Recovery, and whether transactions may not write.
pub(super) const STATE_SQL: &str =
    "select pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on'";

/// What `target_session_attrs` looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerState {
    pub(super) in_recovery: bool,
    pub(super) read_only: bool,
}

impl ServerState {
    fn suits(self, wanted: TargetSession) -> bool {
        match wanted {
            TargetSession::Any => true,
            TargetSession::ReadWrite => !self.read_only,
            TargetSession::ReadOnly => self.read_only,
            TargetSession::Primary => !self.in_recovery,
            TargetSession::Standby | TargetSession::PreferStandby => self.in_recovery,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            ServerState { in_recovery: true, .. } => "a standby",
            ServerState { read_only: true, .. } => "a primary whose transactions are read-only by default",
            ServerState { .. } => "a primary that takes writes",
        }
    }
}

/// Opens a session on the first host that will do.
pub(super) async fn open<S: Session>(at: &ConnInfo) -> Result<S, Error> {
    match at.target_session {
        // All hosts are tried for a standby before any other is taken.
        TargetSession::PreferStandby => match walk(at, TargetSession::Standby).await {
            Err(error) if error.kind() != ErrorKind::Permanent => walk(at, TargetSession::Any).await,
            result => result,
        },
        wanted => walk(at, wanted).await,
    }
}

async fn walk<S: Session>(at: &ConnInfo, wanted: TargetSession) -> Result<S, Error> {
    let mut failures = Vec::new();
    for target in balanced(at, at.targets.iter().collect()) {
        match visit(at, target, wanted).await {
            Ok(session) => return Ok(session),
            Err(error) if leads_on(&error) => failures.push(error),
            Err(error) => return Err(error),
        }
    }
    Err(if failures.len() == 1 { failures.remove(0) } else { Error::Hosts(failures) })
}

/// Whether the next host may do better. One that answers and refuses the login ends the walk, as in libpq: the others
/// would see the same wrong password.
fn leads_on(error: &Error) -> bool {
    match error {
        Error::Resolve { .. }
        | Error::Connect { .. }
        | Error::ConnectTimeout { .. }
        | Error::WrongSession { .. }
        | Error::Hosts(_)
        | Error::Io(_)
        | Error::Closed => true,
        Error::Tls(error) => error.kind() == ErrorKind::Transient,
        Error::Refused { refusal, .. } => matches!(refusal, Refusal::NotAccepting),
        _ => false,
    }
}

/// Tries the addresses of one host.
async fn visit<S: Session>(at: &ConnInfo, target: &Target, wanted: TargetSession) -> Result<S, Error> {
    let mut failures = Vec::new();
    for address in balanced(at, bounded(at, socket::addresses(target), |limit| resolving(target, limit)).await?) {
        let late = |limit| Error::ConnectTimeout { at: address.clone(), limit };
        let here = at.narrowed(target, &address);
        match bounded(at, attempt(&here, target, &address, wanted), late).await {
            Ok(session) => return Ok(session),
            Err(error @ Error::WrongSession { .. }) => return Err(error),
            Err(error) if leads_on(&error) => failures.push(error),
            Err(error) => return Err(error),
        }
    }
    Err(if failures.len() == 1 { failures.remove(0) } else { Error::Hosts(failures) })
}

fn resolving(target: &Target, limit: Duration) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs()));
    Error::Resolve { host: target.host.to_string(), source }
}

async fn bounded<T>(
    at: &ConnInfo,
    work: impl Future<Output = Result<T, Error>>,
    late: impl FnOnce(Duration) -> Error,
) -> Result<T, Error> {
    match at.connect_timeout {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late(limit))),
    }
}

async fn attempt<S: Session>(
    at: &ConnInfo,
    target: &Target,
    address: &Address,
    wanted: TargetSession,
) -> Result<S, Error> {
    let password = at.password_for(target);
    let mut session: S = log_in(at, address, password).await?;
    if wanted != TargetSession::Any {
        let state = match reported_state(&session) {
            Some(state) => state,
            None => session.ask_state().await?,
        };
        if !state.suits(wanted) {
            session.close().await;
            return Err(Error::WrongSession { at: address.clone(), found: state.in_words(), wanted });
        }
    }
    Ok(session)
}

/// Servers from 14 on report both; a pooler may keep the reports to itself.
fn reported_state(session: &impl Session) -> Option<ServerState> {
    let on = |parameter| session.reported(parameter).map(|value| value == "on");
    let (in_recovery, default_read_only) = (on("in_hot_standby")?, on("default_transaction_read_only")?);
    Some(ServerState { in_recovery, read_only: in_recovery || default_read_only })
}

/// Connects by the rules of `sslmode` and logs in.
async fn log_in<S: Session>(at: &ConnInfo, address: &Address, password: Option<SecretString>) -> Result<S, Error> {
    let plain = async || S::open(Socket::connect(at, address).await?, at, password.clone()).await;
    let mode = match address {
        // The way through the kernel needs none, and servers offer none there.
        Address::Unix(_) => TlsMode::Disable,
        Address::Tcp { .. } => at.tls.mode,
    };
    match mode {
        TlsMode::Disable => plain().await,
        TlsMode::Allow => match plain().await {
            Err(refused) if is_refused_by_address(&refused) => match over_tls(at, address, password).await {
                Err(Error::Tls(_)) => Err(refused),
                result => result,
            },
            result => result,
        },
        TlsMode::Prefer => match over_tls(at, address, password.clone()).await {
            Err(error) if is_refused_by_address(&error) || failed_in_handshake(&error) => {
                let session = plain().await;
                if session.is_ok() {
                    tracing::warn!(%error, "connected without TLS after TLS failed, as sslmode=prefer has it");
                }
                session.map_err(|_| error)
            }
            result => result,
        },
        TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => over_tls(at, address, password).await,
    }
}

async fn over_tls<S: Session>(at: &ConnInfo, address: &Address, password: Option<SecretString>) -> Result<S, Error> {
    let socket = match Socket::connect(at, address).await? {
        Socket::Tcp(stream) => tls::negotiate(&at.tls, stream, address).await?,
        socket @ (Socket::Unix(_) | Socket::Tls(_)) => socket,
    };
    S::open(socket, at, password).await
}

/// No line of pg_hba.conf for this kind of connection: there may be one for the other kind. Any other refusal would be
/// the same in both, and is not provoked twice.
fn is_refused_by_address(error: &Error) -> bool {
    matches!(error.refusal(), Some(Refusal::HostBasedAuthentication { .. }))
}

fn failed_in_handshake(error: &Error) -> bool {
    matches!(error, Error::Tls(error) if error.is_of_the_handshake())
}

fn balanced<T>(at: &ConnInfo, mut elements: Vec<T>) -> Vec<T> {
    match at.load_balance {
        LoadBalance::Disable => {}
        LoadBalance::Random => {
            // Keys of the hash are random in each process and differ from one state to the next.
            let random = RandomState::new();
            let mut order = 0_u64;
            elements.sort_by_cached_key(|_| {
                order += 1;
                random.hash_one(order)
            });
        }
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wish_is_met_by_the_servers_it_names() {
        let primary = ServerState { in_recovery: false, read_only: false };
        let read_only = ServerState { in_recovery: false, read_only: true };
        let standby = ServerState { in_recovery: true, read_only: true };
        for (wanted, expected) in [
            (TargetSession::Any, [true, true, true]),
            (TargetSession::ReadWrite, [true, false, false]),
            (TargetSession::ReadOnly, [false, true, true]),
            (TargetSession::Primary, [true, true, false]),
            (TargetSession::Standby, [false, false, true]),
            (TargetSession::PreferStandby, [false, false, true]),
        ] {
            assert_eq!([primary, read_only, standby].map(|state| state.suits(wanted)), expected, "{wanted}");
        }
    }
}
