//! `[rabbitmq]`: which broker, as whom, and whom to believe.

use std::{fmt, path::PathBuf, time::Duration};

use lapin::uri::{AMQPScheme, AMQPUri};
use secrecy::{ExposeSecret, SecretString};

use crate::loopback::is_loopback;

/// What an AMQP frame holds at most, unless the URL says less; RabbitMQ's own default.
const FRAME_BYTES_MAX: u32 = 128 << 10;

/// A broker and how to reach it. `Debug` and [`RabbitMq::shown`] leave out the password.
#[derive(Clone)]
pub struct RabbitMq {
    uri: AMQPUri,
    /// Authorities that the broker's certificate is held to, PEM; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate and its key, PEM; none: only the password counts.
    pub identity: Option<IdentityFiles>,
}

/// A certificate with those that vouch for it, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl RabbitMq {
    /// `heartbeat` holds where the URL has none. The error holds nothing of the URL.
    pub fn parse(url: &SecretString, heartbeat: Duration) -> Result<RabbitMq, String> {
        const WRITE: &str =
            "write amqp://user:password@host:port/vhost, or amqps:// for TLS, and %2f for a slash in a name";
        let text = url.expose_secret().trim();
        // What the parser says of its input repeats it.
        let mut uri: AMQPUri = text.parse().map_err(|_| format!("this is no URL of RabbitMQ; {WRITE}"))?;
        if let Some(host) = bracketed(text) {
            host.clone_into(&mut uri.authority.host);
        }
        if uri.authority.host.is_empty() {
            return Err(format!("the URL names no host; {WRITE}"));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(u16::MAX.into())).contains(&heartbeat) {
            return Err("rabbitmq.heartbeat is out of range; write 1s to 18h".to_owned());
        }
        let seconds = u16::try_from(heartbeat.as_secs()).expect("the range was looked at");
        uri.query.heartbeat = uri.query.heartbeat.filter(|given| *given > 0).or(Some(seconds));
        let frame_max = uri.query.frame_max.filter(|given| *given > 0).unwrap_or(FRAME_BYTES_MAX);
        uri.query.frame_max = Some(frame_max.min(FRAME_BYTES_MAX));
        Ok(RabbitMq { uri, ca_file: None, identity: None })
    }

    /// What the client connects to, with the password.
    pub(crate) fn uri(&self) -> &AMQPUri {
        &self.uri
    }

    pub fn is_tls(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    pub fn is_remote(&self) -> bool {
        !is_loopback(&self.uri.authority.host)
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        let (host, port) = (&self.uri.authority.host, self.uri.authority.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    pub fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }

    pub fn vhost(&self) -> &str {
        &self.uri.vhost
    }

    /// The URL with three stars for the password.
    pub fn shown(&self) -> String {
        let scheme = if self.is_tls() { "amqps" } else { "amqp" };
        format!("{scheme}://{}:***@{}/{}", self.user(), self.address(), self.vhost().replace('/', "%2f"))
    }
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq")
            .field("url", &self.shown())
            .field("ca_file", &self.ca_file)
            .field("identity", &self.identity)
            .finish()
    }
}

/// The address in brackets, which the parser takes for no host at all.
fn bracketed(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1;
    let authority = authority.split(['/', '?']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(host.strip_prefix('[')?.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<RabbitMq, String> {
        RabbitMq::parse(&url.into(), Duration::from_secs(30))
    }

    #[test]
    fn a_url_says_who_and_where_and_its_password_is_not_shown() {
        for (url, shown) in [
            ("amqp://u:hush@broker", "amqp://u:***@broker:5672/%2f"),
            ("amqps://u:hush@broker/orders", "amqps://u:***@broker:5671/orders"),
            ("amqp://u:hush@[::1]:5673/%2f", "amqp://u:***@[::1]:5673/%2f"),
            ("amqp://u%40x:hu%2fsh@127.0.0.1/a%2fb", "amqp://u@x:***@127.0.0.1:5672/a%2fb"),
        ] {
            let rabbitmq = parse(url).unwrap();
            assert_eq!(rabbitmq.shown(), shown);
            assert!(!format!("{rabbitmq:?}").contains("hush"));
            assert_eq!(rabbitmq.uri().query.heartbeat, Some(30));
        }
        assert_eq!(parse("amqp://broker?heartbeat=5").unwrap().uri().query.heartbeat, Some(5));
        assert_eq!(parse("amqp://broker?heartbeat=0").unwrap().uri().query.heartbeat, Some(30));
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for url in
            ["hush", "kafka://hush@broker", "amqp://broker:hush", "amqp:hush", "amqp://b?heartbeat=hush", "amqp:///"]
        {
            let problem = parse(url).err();
            assert!(problem.as_ref().is_none_or(|problem| !problem.contains("hush")), "{url}: {problem:?}");
            assert!(problem.is_some() || url == "amqp:///", "{url}");
        }
        assert!(RabbitMq::parse(&"amqp://broker".into(), Duration::from_millis(20)).is_err());
    }
}
