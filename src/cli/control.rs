//! `walpost pause`, `resume`, `drain` and `log-level`: orders to a walpost that runs, over its HTTP surface.
//!
//! They are the calls that tools of Kafka Connect make; here they find the address and the token in the configuration, make
//! sure that it is this configuration's stream that answers, and wait until what was asked for is so.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, Uri, body::Bytes, header};
use hyper_openssl::client::legacy::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{Exit, output};
use crate::{
    config::{Config, Flags, Needs},
    https,
    loggers::ROOT,
    loopback::{host_of, is_loopback},
    printable::printable,
};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);
/// How often the state is asked for.
const LOOK: Duration = Duration::from_millis(100);
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Stop reading in a running walpost, which keeps the slot
///
/// The open transaction is finished and what was read is delivered. The server keeps the log that is not read:
/// watch walpost_slot_retained_bytes. A restart of the process ends the pause.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  walpost pause -c walpost.toml\n  walpost pause --url http://walpost-0:9464 --within 5m"
)]
pub struct Pause {
    #[command(flatten)]
    order: Order,
}

/// Stream on in a running walpost that was paused or drained
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost resume -c walpost.toml")]
pub struct Resume {
    #[command(flatten)]
    order: Order,
}

/// Deliver what is in flight in a running walpost, then give the slot up
///
/// The process lives on without the slot, which a standby takes, until it is resumed or ended. What is not delivered within
/// shutdown_grace is sent by whoever streams next.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost drain -c walpost.toml --within 2m")]
pub struct Drain {
    #[command(flatten)]
    order: Order,
}

/// Show or change how much a running walpost logs
///
/// The change lasts until the process ends or gets SIGHUP. A filter is one as --log-level takes it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  walpost log-level -c walpost.toml\n  walpost log-level debug -c walpost.toml\n  \
                  walpost log-level walpost=info,librdkafka=debug --url http://walpost-0:9464")]
pub struct LogLevel {
    /// error, warn, info, debug, trace, or a filter. Without one the present levels are printed.
    level: Option<String>,
    #[command(flatten)]
    whom: Whom,
}

#[derive(clap::Args)]
struct Order {
    /// How long to wait until it is so; 0s does not wait. When the time is over the order stands and the exit code is 1.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1m", value_name = "DURATION")]
    within: Duration,
    #[command(flatten)]
    whom: Whom,
}

/// The process that is meant.
#[derive(clap::Args)]
pub(super) struct Whom {
    /// Its address, as http://host:9464 [default: http.listen]. The token is that of http.token_file.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    flags: Flags,
}

impl Pause {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        self.order.give("pause", "paused").await
    }
}

impl Resume {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        self.order.give("resume", "streaming").await
    }
}

impl Drain {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        self.order.give("stop", "stopped").await
    }
}

impl LogLevel {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let remote = Remote::find(&self.whom).await?;
        match self.level {
            Some(level) => {
                let body = json!({ "level": level }).to_string();
                remote.call(Method::PUT, &format!("/admin/loggers/{ROOT}"), Some(body)).await?;
                output::print(format_args!("{}: the log level is {level}\n", remote.slot))?;
            }
            None => {
                let loggers = remote.get("/admin/loggers").await?;
                for (name, logger) in loggers.as_object().into_iter().flatten() {
                    let level = text(logger, "level").unwrap_or_default();
                    output::print(format_args!("{}: {}\n", printable(name.as_bytes()), printable(level.as_bytes())))?;
                }
            }
        }
        Ok(Exit::Done)
    }
}

impl Order {
    /// Makes the call, and waits for the state.
    async fn give(self, call: &str, wanted: &str) -> anyhow::Result<Exit> {
        let remote = Remote::find(&self.whom).await?;
        let names = remote.get("/connectors").await?;
        let Some(name) = names.get(0).and_then(Value::as_str) else { bail!("{} has no stream", remote.base) };
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
        remote.call(Method::PUT, &format!("/connectors/{name}/{call}"), None).await?;
        let deadline = Instant::now() + self.within;
        loop {
            let status = remote.get("/status").await?;
            let state = text(&status, "state").unwrap_or_default();
            if state == wanted && (wanted != "paused" || nothing_in_flight(&status)) {
                output::print(format_args!("{}: {state}\n", remote.slot))?;
                return Ok(Exit::Done);
            }
            if Instant::now() >= deadline {
                let reason = text(&status, "reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
                let now = printable(format!("{state}{reason}").as_bytes());
                if self.within.is_zero() {
                    output::print(format_args!("{}: asked for; it is {now}\n", remote.slot))?;
                    return Ok(Exit::Done);
                }
                bail!(
                    "slot {} is {now}, not {wanted} within {}; the order stands, and walpost status shows when it is done",
                    remote.slot,
                    humantime::format_duration(self.within)
                );
            }
            sleep(LOOK).await;
        }
    }
}

fn nothing_in_flight(status: &Value) -> bool {
    status["in_flight"]["records"].as_u64() == Some(0)
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

/// A walpost that answers.
pub(super) struct Remote {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a slash at its end.
    base: String,
    token: Option<SecretString>,
    /// For people.
    slot: String,
}

impl Remote {
    /// That of the configuration, or of `--url`. One that streams from another slot is only taken where `--url` names it.
    async fn find(whom: &Whom) -> anyhow::Result<Remote> {
        let (mut remote, config) = Remote::at(whom)?;
        let status = remote.get("/status").await?;
        let Some(slot) = text(&status, "slot") else { bail!("{} is no walpost's", remote.base) };
        if whom.url.is_none() && slot != config.slot {
            bail!(
                "{} is the walpost of slot {}, not of {}; name its slot, its http.listen, or --url",
                remote.base,
                printable(slot.as_bytes()),
                config.slot
            );
        }
        remote.slot = printable(slot.as_bytes());
        Ok(remote)
    }

    /// Whoever has that address; nobody is asked yet.
    pub(super) fn at(whom: &Whom) -> anyhow::Result<(Remote, Config)> {
        let config = Config::load(&whom.flags, Needs::NOTHING)?;
        let token = config.http_token.clone();
        let remote = match (&whom.url, config.http_listen) {
            (Some(url), _) => Remote::based(checked(url)?, token)?,
            (None, Some(address)) => Remote::listening(address, token)?,
            (None, None) => {
                bail!("http.listen is off: nobody can be asked; set it for the process that runs, or give --url")
            }
        };
        Ok((remote, config))
    }

    /// What listens there; nobody is asked yet.
    pub(super) fn listening(address: SocketAddr, token: Option<SecretString>) -> anyhow::Result<Remote> {
        Remote::based(format!("http://{}", reachable(address)), token)
    }

    fn based(base: String, token: Option<SecretString>) -> anyhow::Result<Remote> {
        let client = Client::builder(TokioExecutor::new()).build(https::connector(CALL)?);
        Ok(Remote { client, base, token, slot: String::new() })
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let body = self.call(Method::GET, path, None).await?;
        serde_json::from_slice(&body).with_context(|| format!("{}{path} does not answer as a walpost does", self.base))
    }

    async fn call(&self, method: Method, path: &str, body: Option<String>) -> anyhow::Result<Bytes> {
        let (status, body) = self.answer(method, path, body).await?;
        if !status.is_success() {
            bail!("{} refuses: {}", self.base, refusal(status, &body));
        }
        Ok(body)
    }

    /// What a call is answered with, refusals too.
    pub(super) async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let changes = method != Method::GET;
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = self.token.as_ref().filter(|_| changes) {
            let in_clear = self.base.strip_prefix("http://").and_then(|rest| rest.split('/').next());
            if in_clear.is_some_and(|host| !is_loopback(host_of(host))) {
                tracing::warn!("the token goes to {} in clear; give --url an https:// address", self.base);
            }
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose_secret()));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::from(body.unwrap_or_default()))?;
        let unreachable = || format!("no walpost answers at {}: is it running, with this http.listen?", self.base);
        let answered = timeout(CALL, async {
            let answer = self.client.request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            anyhow::Ok((status, body.map_err(|error| anyhow::anyhow!(error))?.to_bytes()))
        });
        answered.await.with_context(unreachable)?.with_context(unreachable)
    }
}

/// As a worker of Kafka Connect words it, where that is who answers.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    text(&body, "message").map_or_else(|| status.to_string(), |message| printable(message.as_bytes()))
}

/// Where to reach what listens on all addresses.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// A URL of a whole server.
fn checked(url: &str) -> anyhow::Result<String> {
    let parsed: Uri = url.parse().map_err(|_| anyhow::anyhow!("--url is no URL; it is one as http://host:9464"))?;
    let is_http = matches!(parsed.scheme_str(), Some("http" | "https"));
    if !is_http
        || parsed.query().is_some()
        || parsed.authority().is_none_or(|authority| authority.as_str().contains('@'))
    {
        bail!("--url is one as http://host:9464 or https://host, without a user: the token is that of http.token_file");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_that_of_a_server() {
        assert_eq!(checked("http://h:9464/").unwrap(), "http://h:9464");
        assert_eq!(checked("https://h/walpost").unwrap(), "https://h/walpost");
        for wrong in ["h:9464", "ftp://h", "http://u:s3cret@h", "http://h?x", "", "/status"] {
            let error = checked(wrong).unwrap_err().to_string();
            assert!(error.contains("http://host:9464") && !error.contains("s3cret"), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_listens_everywhere_is_reached_here() {
        assert_eq!(reachable("0.0.0.0:1".parse().unwrap()), "127.0.0.1:1".parse().unwrap());
        assert_eq!(reachable("[::]:1".parse().unwrap()), "[::1]:1".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:1".parse().unwrap()), "10.0.0.1:1".parse().unwrap());
    }

    #[test]
    fn a_refusal_is_given_in_its_own_words() {
        assert_eq!(
            refusal(StatusCode::FORBIDDEN, br#"{"message":"set \u001b http.token_file"}"#),
            "set \\u{1b} http.token_file"
        );
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, b"<html>"), "502 Bad Gateway");
    }
}
