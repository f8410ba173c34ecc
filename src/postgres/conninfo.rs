//! Connection strings, as libpq takes them.
//!
//! [`ConnInfo::parse`] is pure: the environment comes in as a function, and files (password file, certificates) are
//! read when a connection is made, so that renewed ones are found. What libpq leaves open, walpost fills in for a
//! process that must notice a dead link by itself: `connect_timeout` is 10 s unless set (0 waits for ever, as in
//! libpq), and TCP keepalives start after 30 s of silence and give up after three more probes at 10 s.
//!
//! A password is never shown: neither by `Debug`, nor by `Display` (which `config show` prints), nor by an error.

mod keywords;
mod passfile;
mod syntax;

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr, time::Duration};

use secrecy::SecretString;

use keywords::{KEYWORDS, Treatment};

/// A connection string that cannot be used. No variant holds a value that may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConnInfoError {
    /// Neither libpq nor walpost knows the word.
    #[error("unknown connection keyword {keyword:?}{}", .meant.map(|known| format!("; did you mean {known}?")).unwrap_or_default())]
    UnknownKeyword {
        /// The word as given.
        keyword: String,
        /// The known word that is spelt most alike.
        meant: Option<&'static str>,
    },
    /// As above, where the word may be a piece of a password.
    #[error(
        "unknown connection keyword (not shown, it may be part of a password): quote a value that holds blanks as in password='…', and write & in a URL as %26"
    )]
    UnknownHiddenKeyword,
    /// libpq knows the keyword, walpost does not implement it.
    #[error("connection keyword {keyword} is not supported: {instead}")]
    Refused {
        /// The keyword.
        keyword: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// A word without a value.
    #[error(
        "connection string has a word without \"=\" after {after}: quote a value that holds blanks as in password='…'"
    )]
    NoValue {
        /// The keyword before it.
        after: &'static str,
    },
    /// A quote is opened and not closed.
    #[error("connection string has no closing quote for {keyword}")]
    Quote {
        /// The keyword of the value.
        keyword: &'static str,
    },
    /// A percent sign without two hexadecimal digits, or a result that is no text.
    #[error("connection URL has an invalid percent escape: write a percent sign as %25")]
    Percent,
    /// An IPv6 address without its brackets.
    #[error("connection URL has unbalanced brackets: an IPv6 address is written [::1]")]
    Bracket,
    /// A delimiter that was probably meant as a part of the password.
    #[error("connection URL has an @ that is no delimiter: in user, password and database write @ as %40 and / as %2F")]
    UnescapedUrl,
    /// A parameter without a value.
    #[error("connection URL has a parameter without \"=\": write & in a value as %26")]
    QueryWithoutValue,
    /// A URL of something else.
    #[error("connection URL begins with neither postgresql:// nor postgres://")]
    Scheme,
    /// A value that the keyword does not take.
    #[error("connection keyword {keyword} takes {expected}, not {value:?}")]
    Value {
        /// The keyword.
        keyword: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What was given.
        value: String,
    },
    /// Not repeated: in a URL a password with an unescaped `/` ends up here.
    #[error("connection string has a port that is no number from 1 to 65535")]
    Port,
    /// Lists that belong together and do not fit together.
    #[error("connection string has {left} values for {left_keyword} and {right} for {right_keyword}")]
    Lists {
        /// One list.
        left_keyword: &'static str,
        /// Its length.
        left: usize,
        /// The other list.
        right_keyword: &'static str,
        /// Its length.
        right: usize,
    },
    /// Nobody to log in as.
    #[error("connection string names no user, and neither PGUSER nor USER is set")]
    NoUser,
    /// Two settings that contradict each other.
    #[error("{left} needs sslmode={needed}, not sslmode={mode}")]
    Weak {
        /// The setting that asks for more.
        left: &'static str,
        /// What it asks for.
        needed: &'static str,
        /// What is set.
        mode: TlsMode,
    },
}

/// Declares an enum whose variants are the values of a keyword.
macro_rules! keyword_values {
    ($(#[$doc:meta])* $name:ident: $keyword:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl FromStr for $name {
            type Err = ConnInfoError;

            fn from_str(text: &str) -> Result<$name, ConnInfoError> {
                match text {
                    $($text => Ok($name::$variant),)+
                    other => Err(ConnInfoError::Value {
                        keyword: $keyword,
                        expected: concat!("one of", $(" ", $text),+),
                        value: other.to_owned(),
                    }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)+ })
            }
        }
    };
}

keyword_values! {
    /// `sslmode`.
    TlsMode: "sslmode" {
        /// Plain only.
        Disable = "disable",
        /// Plain, then TLS when the server wants it.
        Allow = "allow",
        /// TLS, then plain.
        Prefer = "prefer",
        /// TLS; with a root certificate at hand as `verify-ca`.
        Require = "require",
        /// TLS with a certificate that a known authority signed.
        VerifyCa = "verify-ca",
        /// As above, and made out for the host.
        VerifyFull = "verify-full",
    }
}

keyword_values! {
    /// `sslnegotiation`.
    TlsNegotiation: "sslnegotiation" {
        /// Ask first, which every server understands.
        Postgres = "postgres",
        /// Begin with the handshake (PostgreSQL 17 and later).
        Direct = "direct",
    }
}

keyword_values! {
    /// `ssl_min_protocol_version`, `ssl_max_protocol_version`.
    TlsVersion: "ssl_min_protocol_version" {
        /// TLS 1.0.
        V1_0 = "TLSv1",
        /// TLS 1.1.
        V1_1 = "TLSv1.1",
        /// TLS 1.2.
        V1_2 = "TLSv1.2",
        /// TLS 1.3.
        V1_3 = "TLSv1.3",
    }
}

keyword_values! {
    /// `channel_binding`.
    ChannelBinding: "channel_binding" {
        /// Without.
        Disable = "disable",
        /// With it where both sides can.
        Prefer = "prefer",
        /// Only with it.
        Require = "require",
    }
}

keyword_values! {
    /// `target_session_attrs`: which server of a list will do.
    TargetSession: "target_session_attrs" {
        /// The first that lets us in.
        Any = "any",
        /// One where transactions may write.
        ReadWrite = "read-write",
        /// One where they may not.
        ReadOnly = "read-only",
        /// One that is not in recovery.
        Primary = "primary",
        /// One that is.
        Standby = "standby",
        /// One that is, else any.
        PreferStandby = "prefer-standby",
    }
}

keyword_values! {
    /// `load_balance_hosts`.
    LoadBalance: "load_balance_hosts" {
        /// Hosts and addresses in order.
        Disable = "disable",
        /// In random order.
        Random = "random",
    }
}

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

/// The settings while they become a [`ConnInfo`]. An empty value counts as none, as in libpq.
struct Settings<'a> {
    given: Vec<(&'static str, String)>,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Settings<'_> {
    fn get(&self, keyword: &str) -> Option<&str> {
        let (_, value) = self.given.iter().rev().find(|(name, _)| *name == keyword)?;
        Some(&**value).filter(|value| !value.is_empty())
    }

    fn parsed<T: FromStr<Err = ConnInfoError>>(&self, keyword: &str) -> Result<Option<T>, ConnInfoError> {
        self.get(keyword).map(str::parse).transpose()
    }

    fn number(&self, keyword: &'static str) -> Result<Option<u32>, ConnInfoError> {
        let Some(text) = self.get(keyword) else { return Ok(None) };
        let number: i32 = text.trim().parse().map_err(|_| ConnInfoError::Value {
            keyword,
            expected: "a whole number",
            value: text.to_owned(),
        })?;
        Ok(Some(u32::try_from(number).unwrap_or(0)))
    }

    /// A duration in seconds or milliseconds, where zero and negative mean "the default".
    fn duration(&self, keyword: &'static str, unit: Duration) -> Result<Option<Duration>, ConnInfoError> {
        Ok(self.number(keyword)?.filter(|number| *number > 0).map(|number| unit * number))
    }

    fn flag(&self, keyword: &'static str) -> Result<bool, ConnInfoError> {
        match self.get(keyword) {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(other) => Err(ConnInfoError::Value { keyword, expected: "0 or 1", value: other.to_owned() }),
        }
    }

    fn path(&self, keyword: &str) -> Option<PathBuf> {
        self.get(keyword).map(PathBuf::from)
    }

    fn secret(&self, keyword: &str) -> Option<SecretString> {
        self.get(keyword).map(SecretString::from)
    }

    fn resolve(self) -> Result<ConnInfo, ConnInfoError> {
        self.refuse_what_is_not_spoken()?;
        let environment = |name: &str| (self.variable)(name).filter(|value| !value.is_empty());
        let home = environment("HOME").map(PathBuf::from);
        let user = self.get("user").map(str::to_owned);
        let user = user.or_else(|| environment("USER")).or_else(|| environment("LOGNAME"));
        let user = user.ok_or(ConnInfoError::NoUser)?;
        let tls = self.tls(home.as_ref().map(|home| home.join(".postgresql")))?;
        let second = Duration::from_secs(1);
        let keepalive = Keepalive {
            idle: self.duration("keepalives_idle", second)?.unwrap_or(Duration::from_secs(30)),
            interval: self.duration("keepalives_interval", second)?.unwrap_or(Duration::from_secs(10)),
            count: self.number("keepalives_count")?.filter(|count| *count > 0).unwrap_or(3),
        };
        let application_name = self.get("application_name").or_else(|| self.get("fallback_application_name"));
        Ok(ConnInfo {
            targets: self.targets()?,
            database: self.get("dbname").unwrap_or(&user).to_owned(),
            user,
            password: self.secret("password"),
            passfile: self.path("passfile").or_else(|| home.map(|home| home.join(".pgpass"))),
            tls,
            channel_binding: self.parsed("channel_binding")?.unwrap_or(ChannelBinding::Prefer),
            application_name: application_name.unwrap_or("walpost").to_owned(),
            options: self.get("options").map(str::to_owned),
            connect_timeout: match self.number("connect_timeout")? {
                None => Some(Duration::from_secs(10)),
                Some(0) => None,
                Some(seconds) => Some(second * seconds),
            },
            keepalive: self.flag("keepalives")?.then_some(keepalive),
            tcp_user_timeout: self.duration("tcp_user_timeout", Duration::from_millis(1))?,
            target_session: self.parsed("target_session_attrs")?.unwrap_or(TargetSession::Any),
            load_balance: self.parsed("load_balance_hosts")?.unwrap_or(LoadBalance::Disable),
            given: self.shown(),
        })
    }

    /// Values that ask for something walpost does not do.
    fn refuse_what_is_not_spoken(&self) -> Result<(), ConnInfoError> {
        if let Some(encoding) = self.get("client_encoding") {
            if !["utf8", "utf-8", "auto"].contains(&&*encoding.to_ascii_lowercase()) {
                let instead = "walpost always asks for UTF-8";
                return Err(ConnInfoError::Refused { keyword: "client_encoding", instead });
            }
        }
        if self.get("gssencmode") == Some("require") {
            return Err(ConnInfoError::Refused { keyword: "gssencmode", instead: "use TLS" });
        }
        Ok(())
    }

    fn targets(&self) -> Result<Vec<Target>, ConnInfoError> {
        fn list(text: Option<&str>) -> Vec<&str> {
            text.map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default()
        }
        let (hosts, addresses, ports) = (list(self.get("host")), list(self.get("hostaddr")), list(self.get("port")));
        let count = hosts.len().max(addresses.len()).max(1);
        let fit = |left_keyword, left, right_keyword, right| {
            let fits = left == right || left == 0 || right == 0;
            fits.then_some(()).ok_or(ConnInfoError::Lists { left_keyword, left, right_keyword, right })
        };
        fit("host", hosts.len(), "hostaddr", addresses.len())?;
        if ports.len() > 1 {
            fit("host", count, "port", ports.len())?;
        }
        (0..count)
            .map(|i| {
                let port = ports.get(if ports.len() == 1 { 0 } else { i }).filter(|port| !port.is_empty());
                let port = match port.map(|port| port.parse()) {
                    None => 5432,
                    Some(Ok(port)) if port > 0 => port,
                    Some(_) => return Err(ConnInfoError::Port),
                };
                let address = addresses.get(i).filter(|address| !address.is_empty());
                let host = hosts.get(i).copied().filter(|host| !host.is_empty());
                Ok(Target { host: host_at(host, address.copied())?, port })
            })
            .collect()
    }

    fn tls(&self, home: Option<PathBuf>) -> Result<TlsSettings, ConnInfoError> {
        let root = match self.get("sslrootcert") {
            Some("system") => RootCertificate::System,
            Some(path) => RootCertificate::File(PathBuf::from(path)),
            None => RootCertificate::Default(home.as_ref().map(|home| home.join("root.crt"))),
        };
        let default = if root == RootCertificate::System { TlsMode::VerifyFull } else { TlsMode::Prefer };
        let mode = self.parsed("sslmode")?.unwrap_or(default);
        let negotiation = self.parsed("sslnegotiation")?.unwrap_or(TlsNegotiation::Postgres);
        if root == RootCertificate::System && mode != TlsMode::VerifyFull {
            return Err(ConnInfoError::Weak { left: "sslrootcert=system", needed: "verify-full", mode });
        }
        if negotiation == TlsNegotiation::Direct && matches!(mode, TlsMode::Disable | TlsMode::Allow | TlsMode::Prefer)
        {
            return Err(ConnInfoError::Weak { left: "sslnegotiation=direct", needed: "require or stricter", mode });
        }
        Ok(TlsSettings {
            mode,
            negotiation,
            root,
            certificate: self.path("sslcert"),
            key: self.path("sslkey"),
            key_password: self.secret("sslpassword"),
            home,
            server_name_indication: self.flag("sslsni")?,
            version_min: self.parsed("ssl_min_protocol_version")?.unwrap_or(TlsVersion::V1_2),
            version_max: self.parsed("ssl_max_protocol_version")?,
        })
    }

    fn shown(&self) -> Vec<(&'static str, Option<String>)> {
        let value_of = |keyword: &keywords::Keyword| {
            let value = self.get(keyword.name)?;
            Some((keyword.name, (keyword.treatment != Treatment::Secret).then(|| value.to_owned())))
        };
        KEYWORDS.iter().filter_map(value_of).collect()
    }
}

fn host_at(host: Option<&str>, address: Option<&str>) -> Result<Host, ConnInfoError> {
    let parsed = address.map(|text| {
        text.parse().map_err(|_| ConnInfoError::Value {
            keyword: "hostaddr",
            expected: "a numeric address",
            value: text.to_owned(),
        })
    });
    let address = parsed.transpose()?;
    Ok(match (host, address) {
        (Some(host), _) if host.starts_with(['/', '@']) => Host::Unix(PathBuf::from(host)),
        (Some(name), address) => Host::Tcp { name: name.to_owned(), address },
        (None, Some(address)) => Host::Tcp { name: address.to_string(), address: Some(address) },
        (None, None) => Host::Unix(default_socket_directory()),
    })
}

/// Where servers put their socket when nothing else is said: Debian's directory where there is one, else PostgreSQL's.
fn default_socket_directory() -> PathBuf {
    let debian = PathBuf::from("/var/run/postgresql");
    if debian.is_dir() { debian } else { PathBuf::from("/tmp") }
}

#[cfg(test)]
mod tests;
