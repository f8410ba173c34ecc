//! Connection strings, as libpq takes them.
//!
//! [`ConnInfo::parse`] is pure: the environment comes in as a function, and files (password file, certificates) are
//! read when a connection is made, so that renewed ones are found. What libpq leaves open, walpost fills in for a
//! process that must notice a dead link by itself: `connect_timeout` is 10 s unless set (0 waits for ever, as in
//! libpq), and TCP keepalives start after 30 s of silence and give up after three more probes at 10 s. And `sslmode` is
//! `require` unless set, where a host is not sure to be this machine.
//!
//! A password is never shown: neither by `Debug`, nor by `Display` (which `config show` prints), nor by an error.

mod error;
mod keywords;
mod passfile;
mod settings;
mod syntax;
mod values;

use std::{fmt, net::IpAddr, path::PathBuf, time::Duration};

use secrecy::SecretString;

pub use self::{
    error::ConnInfoError,
    values::{ChannelBinding, LoadBalance, TargetSession, TlsMode, TlsNegotiation, TlsVersion},
};
use self::{
    keywords::{KEYWORDS, Treatment},
    settings::{Settings, default_socket_directory},
};
use super::socket::Address;
use crate::loopback::is_loopback;

/// One element of the host list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where.
    pub host: Host,
    /// The TCP port, or the number in the socket's name.
    pub port: u16,
}

/// A way to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name or address, and the address to use instead of looking the name up (`hostaddr`).
    Tcp {
        /// Looked up, verified in the certificate, looked for in the password file.
        name: String,
        /// Connected to when given.
        address: Option<IpAddr>,
    },
    /// The directory of a Unix socket; `@` begins an abstract name.
    Unix(PathBuf),
}

impl fmt::Display for Host {
    /// Where it is connected to: the address rather than the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp { address: Some(address), .. } => address.fmt(f),
            Host::Tcp { name, address: None } => f.write_str(name),
            Host::Unix(directory) => directory.display().fmt(f),
        }
    }
}

impl Target {
    /// Not sure to be this machine.
    pub fn is_remote(&self) -> bool {
        match &self.host {
            Host::Tcp { address: Some(address), .. } => !address.to_canonical().is_loopback(),
            Host::Tcp { name, address: None } => !is_loopback(name),
            Host::Unix(_) => false,
        }
    }
}

/// `sslrootcert`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootCertificate {
    /// Not set: this file (`~/.postgresql/root.crt`) where it exists.
    Default(Option<PathBuf>),
    /// This file.
    File(PathBuf),
    /// `system`: the authorities that the operating system trusts.
    System,
}

/// What TLS is wanted and how it is proven.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// `sslmode`.
    pub mode: TlsMode,
    /// `sslnegotiation`.
    pub negotiation: TlsNegotiation,
    /// `sslrootcert`.
    pub root: RootCertificate,
    /// `sslcert`.
    pub certificate: Option<PathBuf>,
    /// `sslkey`.
    pub key: Option<PathBuf>,
    /// `sslpassword`, of the key.
    pub key_password: Option<SecretString>,
    /// Directory of the certificate and key that are taken where they exist and none is named (`~/.postgresql`).
    pub home: Option<PathBuf>,
    /// `sslsni`: whether the host name is sent in clear.
    pub server_name_indication: bool,
    /// `ssl_min_protocol_version`.
    pub version_min: TlsVersion,
    /// `ssl_max_protocol_version`.
    pub version_max: Option<TlsVersion>,
}

impl TlsSettings {
    /// Whether the server has to prove who it is.
    pub fn is_verified(&self) -> bool {
        match (self.mode, &self.root) {
            (TlsMode::VerifyCa | TlsMode::VerifyFull, _) => true,
            (TlsMode::Require, RootCertificate::Default(file)) => file.as_ref().is_some_and(|file| file.exists()),
            (TlsMode::Require, RootCertificate::File(_) | RootCertificate::System) => true,
            (TlsMode::Disable | TlsMode::Allow | TlsMode::Prefer, _) => false,
        }
    }
}

/// How a dead peer is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub count: u32,
}

/// Where PostgreSQL is and how to get in. The password does not print.
#[derive(Clone)]
pub struct ConnInfo {
    /// In the order of the list, at least one.
    pub targets: Vec<Target>,
    /// The role to log in as.
    pub user: String,
    /// The database to work in.
    pub database: String,
    password: Option<SecretString>,
    passfile: Option<PathBuf>,
    /// TLS.
    pub tls: TlsSettings,
    /// `channel_binding`.
    pub channel_binding: ChannelBinding,
    /// `application_name`, `walpost` unless set.
    pub application_name: String,
    /// `options`, passed to the server as they are.
    pub options: Option<String>,
    /// Bound of one attempt at one address, authentication included; none waits for ever.
    pub connect_timeout: Option<Duration>,
    /// TCP keepalives, unless switched off.
    pub keepalive: Option<Keepalive>,
    /// How long sent data may stay unacknowledged; none is the system's rule.
    pub tcp_user_timeout: Option<Duration>,
    /// `target_session_attrs`.
    pub target_session: TargetSession,
    /// `load_balance_hosts`.
    pub load_balance: LoadBalance,
    /// What was given, for `Display`; secrets only as the fact that they were.
    given: Vec<(&'static str, Option<String>)>,
}

impl ConnInfo {
    /// Reads a connection URL or a keyword/value string; `variable` gives the environment.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<ConnInfo, ConnInfoError> {
        let mut given: Vec<(&'static str, String)> =
            syntax::parse(text)?.into_iter().map(|(keyword, value)| (keyword.name, value)).collect();
        for keyword in KEYWORDS {
            let Some(value) = keyword.variable.and_then(&variable).filter(|value| !value.is_empty()) else { continue };
            if let Treatment::Refused(instead) = keyword.treatment {
                return Err(ConnInfoError::Refused { keyword: keyword.variable.unwrap_or(keyword.name), instead });
            }
            // Before the string's own settings, which replace it.
            given.insert(0, (keyword.name, value));
        }
        Settings { given, variable: &variable }.resolve()
    }

    /// Whether a password is given, of the role or of the key.
    pub fn has_secret(&self) -> bool {
        self.password.is_some() || self.tls.key_password.is_some()
    }

    /// The way to one server, whatever it has become by the time it is taken again.
    pub(super) fn narrowed(&self, target: &Target, address: &Address) -> ConnInfo {
        let host = match (&target.host, address) {
            (Host::Tcp { name, .. }, Address::Tcp { address, .. }) => {
                Host::Tcp { name: name.clone(), address: Some(address.ip()) }
            }
            (host, _) => host.clone(),
        };
        let targets = vec![Target { host, port: target.port }];
        ConnInfo { targets, target_session: TargetSession::Any, ..self.clone() }
    }

    /// The password for one host: the one given, else the password file's.
    pub(crate) fn password_for(&self, target: &Target) -> Option<SecretString> {
        self.password.clone().or_else(|| {
            let host = match &target.host {
                Host::Tcp { name, .. } => name.clone(),
                Host::Unix(directory) if *directory == default_socket_directory() => "localhost".to_owned(),
                Host::Unix(directory) => directory.display().to_string(),
            };
            let login = passfile::Login { host: &host, port: target.port, database: &self.database, user: &self.user };
            passfile::look_up(self.passfile.as_deref()?, login)
        })
    }
}

/// The settings as keyword/value pairs, quoted so that they can be read back, secrets as `***`.
impl fmt::Display for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (keyword, value)) in self.given.iter().enumerate() {
            let gap = if i == 0 { "" } else { " " };
            match value {
                None => write!(f, "{gap}{keyword}=***")?,
                Some(value) if value.is_empty() || value.contains(|c: char| c.is_whitespace() || "'\\".contains(c)) => {
                    write!(f, "{gap}{keyword}='{}'", value.replace('\\', r"\\").replace('\'', r"\'"))?;
                }
                Some(value) => write!(f, "{gap}{keyword}={value}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnInfo({self})")
    }
}

#[cfg(test)]
mod tests;
