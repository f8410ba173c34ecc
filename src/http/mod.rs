//! What walpost says of itself over HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever restarts and
//! alerts, `/status` for scripts, a page for people, and what tools of Kafka Connect ask a worker ([`connect`]).
//!
//! Nearly all of it only reads [`Status`], at the moment of the request; what changes the stream gives an order to
//! [`Control`], where [`Access`] allows it. Dead letters are in the database, and asked for there ([`letters`]). It shares
//! the one thread of the stream, so between requests it does no more than note a point of the [`history`], and connections,
//! heads, bodies, answers and costly calls have bounds. Pages of other origins are kept out ([`guard`]). No answer has a
//! secret or a payload.

mod access;
mod connect;
mod guard;
mod health;
mod history;
mod letters;
mod limit;
mod metrics;
mod page;
mod process;
mod rate;
mod report;
mod serve;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    config::Config,
    control::Control,
    loggers::Loggers,
    status::{Now, Status},
};
pub use access::Access;
pub use connect::Connector;
use history::History;
use letters::Letters;
use limit::{Limited, SILENCE_MAX};
use rate::Bucket;

/// Largest body of a request, in bytes.
const BODY_MAX: usize = 16 << 10;

/// What does not change while the process runs.
#[derive(Clone, Debug)]
pub struct Facts {
    pub database: String,
    pub slot: String,
    pub publication: String,
    /// The longest that the session's loop may take to come round.
    pub turn_max: Duration,
}

impl Facts {
    pub fn of(config: &Config) -> Facts {
        Facts {
            database: config.database.database.clone(),
            slot: config.slot.clone(),
            publication: config.publication.clone(),
            // The clock of the feedback turns it at least this often; a busy machine may be late.
            turn_max: config.status_interval * 3 + Duration::from_secs(30),
        }
    }
}

/// Whether no restart is called for, as `/healthz` says it.
pub fn is_alive(now: &Now, facts: &Facts) -> bool {
    health::alive(now, facts, SystemTime::now()).is_good()
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error(
    "the HTTP surface cannot listen on {address}: {source}; set http.listen to a free address of this host, or to \"off\""
)]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Takes the address, before anything else is begun: an error here is one of the configuration.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, source })
}

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, answers: Answers) {
    let answers = Arc::new(answers);
    tokio::join!(
        history::keep(Arc::clone(&answers)),
        serve::serve(Limited::new(listener, SILENCE_MAX), router(answers))
    );
}

/// What a request is answered from.
#[derive(Debug)]
pub struct Answers {
    status: Arc<Status>,
    control: Control,
    facts: Facts,
    connector: Connector,
    access: Access,
    loggers: Loggers,
    letters: Letters,
    history: History,
    /// Wrong tokens that may still be shown.
    guesses: Bucket,
    /// Calls of the database.
    costly: Bucket,
    /// All calls but those of who looks whether walpost is well.
    asked: Bucket,
    clock: fn() -> SystemTime,
}

impl Answers {
    /// Of the process whose HTTP surface listens at an address.
    pub fn new(
        config: &Config,
        listen: SocketAddr,
        status: Arc<Status>,
        control: Control,
        loggers: Loggers,
    ) -> Answers {
        Answers {
            status,
            control,
            facts: Facts::of(config),
            connector: Connector::of(config, listen),
            access: Access::of(listen, config.http_token.clone()),
            loggers,
            letters: Letters::of(config),
            history: History::default(),
            guesses: guesses(),
            costly: costly(),
            asked: asked(),
            clock: SystemTime::now,
        }
    }
}

fn guesses() -> Bucket {
    Bucket::new(10, Duration::from_secs(1))
}

fn costly() -> Bucket {
    Bucket::new(20, Duration::from_millis(250))
}

fn asked() -> Bucket {
    Bucket::new(400, Duration::from_millis(5))
}

fn router(answers: Arc<Answers>) -> Router {
    // Another method on one of these paths is answered 405 with what is allowed.
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/history", get(history::history))
        .route("/records", get(history::records))
        .merge(letters::router())
        .merge(page::router())
        .merge(connect::router())
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn_with_state(Arc::clone(&answers), guard::guard))
        .with_state(answers)
}

/// A person's browser gets a page, all others what a worker of Kafka Connect says.
async fn root(State(answers): State<Arc<Answers>>, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    match accepts.split(',').any(|range| range.trim_start().starts_with("text/html")) {
        true => page::html(),
        false => connect::server(&answers),
    }
}

async fn metrics(State(answers): State<Arc<Answers>>, headers: HeaderMap) -> Response {
    let wanted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let form = metrics::Form::accepted(wanted);
    match metrics::text(&answers.status, &answers.facts, (answers.clock)(), form) {
        Ok(text) => ([(header::CONTENT_TYPE, form.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn healthz(State(answers): State<Arc<Answers>>) -> Response {
    verdict(health::alive(&answers.status.now(), &answers.facts, (answers.clock)()))
}

async fn readyz(State(answers): State<Arc<Answers>>) -> Response {
    verdict(health::ready(&answers.status.now(), (answers.clock)()))
}

fn verdict(verdict: health::Verdict) -> Response {
    let code = if verdict.is_good() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(verdict)).into_response()
}

async fn status(State(answers): State<Arc<Answers>>) -> Response {
    Json(report::Report::new(&answers.status.now(), &answers.facts, (answers.clock)())).into_response()
}

async fn unknown() -> Response {
    let paths = [
        "/",
        "/metrics",
        "/healthz",
        "/readyz",
        "/status",
        "/history",
        "/records",
        "/dead-letters",
        "/connectors",
        "/connector-plugins",
        "/admin/loggers",
    ];
    let answer = json!({"error_code": 404, "message": "HTTP 404 Not Found", "paths": paths});
    (StatusCode::NOT_FOUND, Json(answer)).into_response()
}

#[cfg(test)]
mod tests;
