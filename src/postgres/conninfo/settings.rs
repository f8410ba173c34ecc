//! From keywords and values to what they mean.

use std::{path::PathBuf, str::FromStr, time::Duration};

use secrecy::SecretString;

use super::{
    ChannelBinding, ConnInfo, ConnInfoError, Host, Keepalive, LoadBalance, RootCertificate, Target, TargetSession,
    TlsMode, TlsNegotiation, TlsSettings, TlsVersion,
    keywords::{self, KEYWORDS, Treatment},
};

/// The settings while they become a [`ConnInfo`]. An empty value counts as none, as in libpq.
pub(super) struct Settings<'a> {
    pub(super) given: Vec<(&'static str, String)>,
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
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

    pub(super) fn resolve(mut self) -> Result<ConnInfo, ConnInfoError> {
        self.refuse_what_is_not_spoken()?;
        let targets = self.targets()?;
        // libpq would take a plain connection too. That is for this machine, or for those who ask for it.
        let open = self.get("sslmode").is_none() && self.get("sslrootcert") != Some("system");
        if open && targets.iter().any(Target::is_remote) {
            self.given.push(("sslmode", TlsMode::Require.to_string()));
        }
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
            targets,
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
pub(super) fn default_socket_directory() -> PathBuf {
    let debian = PathBuf::from("/var/run/postgresql");
    if debian.is_dir() { debian } else { PathBuf::from("/tmp") }
}
