//! Where the database is, and its connection string.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use super::settings::Reader;
use crate::{
    config::{ConfigError, Environment},
    loopback::is_loopback,
};

/// `database.*`.
#[derive(Clone)]
pub struct Database {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Option<SecretString>,
    pub name: String,
    /// libpq's keywords for the rest, as they are there: `sslmode`, …
    pub keywords: Vec<(&'static str, String)>,
    /// `database.sslpassword`.
    pub key_password: Option<SecretString>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}

/// Keys of the connector whose values libpq takes by another name.
const KEYWORDS: [(&str, &str); 4] = [
    ("database.sslmode", "sslmode"),
    ("database.sslrootcert", "sslrootcert"),
    ("database.sslcert", "sslcert"),
    ("database.sslkey", "sslkey"),
];

impl Reader<'_> {
    pub(super) fn database(&self, environment: &Environment) -> Result<Database, ConfigError> {
        let port = self.text("database.port");
        let port = port.trim().parse::<u16>().map_err(|_| {
            let problem = format!("{port:?} is no port; allowed are 1 to 65535");
            match self.given.get("database.port") {
                Some(item) => self.refuse(item, problem),
                None => self.missing("database.port", &problem),
            }
        })?;
        let mut keywords: Vec<(&'static str, String)> = KEYWORDS
            .iter()
            .filter_map(|(key, keyword)| Some((*keyword, self.optional(key)?.trim().to_owned())))
            .collect();
        if let Some((_, mode)) = keywords.iter_mut().find(|(keyword, _)| *keyword == "sslmode") {
            *mode = mode.to_ascii_lowercase();
        }
        let host = self.required("database.hostname")?;
        // Debezium's default, where walpost's own asks for more.
        let said = keywords.iter().any(|(keyword, _)| *keyword == "sslmode") || environment.get("PGSSLMODE").is_some();
        if !said && !is_loopback(&host) {
            keywords.insert(0, ("sslmode", "prefer".to_owned()));
        }
        if !self.switch("database.tcpKeepAlive") {
            keywords.push(("keepalives", "0".to_owned()));
        }
        let secret = |key: &str| self.optional(key).filter(|value| !value.is_empty()).map(SecretString::from);
        Ok(Database {
            host,
            port,
            user: self.required("database.user")?,
            password: secret("database.password"),
            name: self.required("database.dbname")?,
            keywords,
            key_password: secret("database.sslpassword"),
        })
    }
}

impl Database {
    /// The connection string with its secrets.
    pub(in crate::config) fn url_with_secrets(&self) -> SecretString {
        let mut url = self.url();
        for (keyword, secret) in [("password", &self.password), ("sslpassword", &self.key_password)] {
            if let Some(secret) = secret {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(&format!("{keyword}={}", encoded(secret.expose_secret(), "")));
            }
        }
        url.into()
    }

    /// The connection string without its secrets.
    pub fn url(&self) -> String {
        let host = self.host.trim();
        // An address of IPv6 has colons of its own.
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut url =
            format!("postgres://{}@{host}:{}/{}", encoded(&self.user, ""), self.port, encoded(&self.name, ""));
        for (index, (keyword, value)) in self.keywords.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(&format!("{keyword}={}", encoded(value, "/")));
        }
        url
    }
}

/// A text as it stands in a URL, where these characters part nothing.
fn encoded(text: &str, plain: &str) -> String {
    let mut encoded = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "-._~".contains(c) || plain.contains(c) {
            encoded.push(c);
        } else {
            let mut bytes = [0; 4];
            encoded.extend(c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::conninfo::{ConnInfo, Host};

    #[test]
    fn the_connection_string_reads_back() {
        let database = Database {
            host: "::1".to_owned(),
            port: 5433,
            user: "o:p@r/ä".to_owned(),
            password: Some("hush".into()),
            name: "my shop/1?".to_owned(),
            keywords: vec![("sslmode", "verify-ca".to_owned()), ("sslrootcert", "/etc/a b&c.pem".to_owned())],
            key_password: None,
        };
        let info = ConnInfo::parse(&database.url(), |_| None).unwrap();
        assert_eq!((info.user.as_str(), info.database.as_str()), ("o:p@r/ä", "my shop/1?"));
        assert_eq!(info.targets[0].host, Host::Tcp { name: "::1".to_owned(), address: None });
        assert_eq!(info.targets[0].port, 5433);
        assert!(format!("{:?}", info.tls.root).contains("/etc/a b&c.pem"));
        assert!(!format!("{database:?}").contains("hush"));
    }
}
