//! A receiver of walpost's webhooks: verifies the signature, does its work once for an idempotency key, and fails when told.
//!
//! ```sh
//! echo "whsec_$(openssl rand -base64 32)" > secret
//! cargo run --example webhook_receiver -- --listen 127.0.0.1:8080 --secret-file secret
//! curl -X POST 'http://127.0.0.1:8080/fail?times=3&status=500'    # the next three are answered so
//! curl http://127.0.0.1:8080/stats
//! ```
//!
//! The first build takes minutes. Everything else that is posted is taken for a webhook. What was taken is a line on standard
//! output: the key, the type of the event and `new`, or `again` where the work was not done a second time.

use std::{
    collections::{HashSet, VecDeque},
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, RawQuery, State},
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Parser;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Keys that are remembered. In your own service the memory is a table, written in the transaction of the work, so that it
/// outlives the process: a replay may bring a key again days later.
const KEYS_MAX: usize = 100_000;
/// How far a timestamp may be off: an older request may be one that somebody recorded and sends again.
const TOLERANCE_SECS: u64 = 5 * 60;
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

#[derive(Parser)]
struct Arguments {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// File with the secrets, one a line: whsec_ and base64. Without it nothing is verified
    #[arg(long)]
    secret_file: Option<PathBuf>,
    /// How many webhooks fail first
    #[arg(long, default_value_t = 0)]
    fail: u32,
    /// Status that those are answered with
    #[arg(long, default_value_t = 500)]
    status: u16,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let receiver = Arc::new(Receiver {
        verifier: match &arguments.secret_file {
            Some(file) => Some(Verifier::parse(&std::fs::read_to_string(file).context("the secrets cannot be read")?)?),
            None => None,
        },
        taken: Mutex::default(),
        failing: Mutex::new(Failing { times: arguments.fail, status: StatusCode::from_u16(arguments.status)? }),
    });
    let router = Router::new()
        .route("/fail", post(fail))
        .route("/stats", get(stats))
        .fallback(post(webhook))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(receiver);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

struct Receiver {
    verifier: Option<Verifier>,
    taken: Mutex<Taken>,
    failing: Mutex<Failing>,
}

/// Takes one event. The answer says what walpost does next: 2xx, it goes on; 5xx, it tries again; 4xx, it gives the event up.
async fn webhook(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    // First of all, over the bytes as they came.
    if receiver.verifier.as_ref().is_some_and(|verifier| !verifier.accepts(&headers, &body)) {
        return (StatusCode::UNAUTHORIZED, "no signature of ours");
    }
    if let Some(status) = receiver.failing.lock().expect("no holder panics").next() {
        return (status, "as told");
    }
    let Some(key) = text(&headers, "idempotency-key") else {
        return (StatusCode::BAD_REQUEST, "no Idempotency-Key");
    };
    // The work and the key under one lock, as they would be in one transaction: whoever brings the key meanwhile waits.
    let mut taken = receiver.taken.lock().expect("no holder panics");
    let is_new = taken.claim(key);
    if is_new {
        work(&body);
    }
    let event_type = text(&headers, "x-event-type").unwrap_or("-");
    let word = if is_new { "new" } else { "again" };
    // A reader that is gone stops nothing.
    let _ = writeln!(std::io::stdout(), "{key} {event_type} {word}");
    (StatusCode::OK, word)
}

/// What is to happen once for an event.
fn work(_body: &[u8]) {}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Verifies signatures of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`. <https://www.standardwebhooks.com> has
/// libraries for many languages that do the same.
struct Verifier {
    /// Two while the secret is changed.
    keys: Vec<Hmac<Sha256>>,
}

impl Verifier {
    fn parse(secrets: &str) -> anyhow::Result<Verifier> {
        let mut keys = Vec::new();
        for secret in secrets.split_whitespace() {
            let encoded = secret.strip_prefix("whsec_").context("a secret does not begin with whsec_")?;
            let key = STANDARD.decode(encoded).ok().context("what follows whsec_ is no base64")?;
            keys.push(Hmac::new_from_slice(&key)?);
        }
        if keys.is_empty() {
            bail!("the file holds no secret");
        }
        Ok(Verifier { keys })
    }

    fn accepts(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let parts = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| text(headers, name));
        let [Some(id), Some(timestamp), Some(signatures)] = parts else { return false };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if !timestamp.parse::<u64>().is_ok_and(|sent| sent.abs_diff(now) <= TOLERANCE_SECS) {
            return false;
        }
        let decode = |signature: &str| STANDARD.decode(signature.strip_prefix("v1,")?).ok();
        let given: Vec<_> = signatures.split(' ').filter_map(decode).collect();
        // One of the signatures by one of the keys; `verify_slice` takes the same time whatever is wrong.
        self.keys.iter().any(|key| {
            let signed = key.clone().chain_update(format!("{id}.{timestamp}.")).chain_update(body);
            given.iter().any(|given| signed.clone().verify_slice(given).is_ok())
        })
    }
}

/// The keys that were met, the oldest forgotten first.
#[derive(Default)]
struct Taken {
    known: HashSet<String>,
    by_age: VecDeque<String>,
    new: u64,
    again: u64,
}

impl Taken {
    /// Whether the key is met for the first time.
    fn claim(&mut self, key: &str) -> bool {
        if !self.known.insert(key.to_owned()) {
            self.again += 1;
            return false;
        }
        self.new += 1;
        self.by_age.push_back(key.to_owned());
        if self.by_age.len() > KEYS_MAX {
            let oldest = self.by_age.pop_front();
            oldest.map(|oldest| self.known.remove(&oldest));
        }
        true
    }
}

/// The next webhooks fail so often, with that status.
struct Failing {
    times: u32,
    status: StatusCode,
}

impl Failing {
    fn next(&mut self) -> Option<StatusCode> {
        self.times = self.times.checked_sub(1)?;
        Some(self.status)
    }
}

/// `POST /fail?times=3&status=500`
async fn fail(
    State(receiver): State<Arc<Receiver>>,
    RawQuery(query): RawQuery,
) -> Result<&'static str, (StatusCode, &'static str)> {
    let mut failing = Failing { times: 1, status: StatusCode::INTERNAL_SERVER_ERROR };
    for parameter in query.iter().flat_map(|query| query.split('&')) {
        match parameter.split_once('=') {
            Some(("times", times)) => failing.times = times.parse().map_err(|_| refused("times is no number"))?,
            Some(("status", status)) => failing.status = status.parse().map_err(|_| refused("status is no status"))?,
            Some(_) | None => return Err(refused("there are times and status")),
        }
    }
    *receiver.failing.lock().expect("no holder panics") = failing;
    Ok("as you wish\n")
}

fn refused(why: &'static str) -> (StatusCode, &'static str) {
    (StatusCode::BAD_REQUEST, why)
}

/// How many events were new, and how many came again.
async fn stats(State(receiver): State<Arc<Receiver>>) -> Json<serde_json::Value> {
    let taken = receiver.taken.lock().expect("no holder panics");
    Json(serde_json::json!({ "new": taken.new, "again": taken.again }))
}
