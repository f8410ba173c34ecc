//! What walpost says of itself over HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever restarts and
//! alerts, `/status` for people and scripts.
//!
//! Everything here only reads [`Status`], at the moment of the request. It shares the one thread of the stream, so it
//! does no work between requests, reads no request body, and has a bound on connections and on what it answers. Nothing
//! that is secret is in reach of it: [`Facts`] are names, not addresses.

mod health;
mod limit;
mod metrics;
mod report;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{config::Config, status::Status};
use limit::{Limited, SILENCE_MAX};

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

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error(
    "metrics and health cannot listen on {address}: {source}; set http.listen to a free address of this host, or to \"off\""
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
pub async fn serve(listener: TcpListener, status: Arc<Status>, facts: Facts) -> io::Result<()> {
    axum::serve(Limited::new(listener, SILENCE_MAX), router(status, facts, SystemTime::now)).await
}

/// What a request is answered from.
#[derive(Debug)]
struct Shown {
    status: Arc<Status>,
    facts: Facts,
    clock: fn() -> SystemTime,
}

fn router(status: Arc<Status>, facts: Facts, clock: fn() -> SystemTime) -> Router {
    // Another method on one of these paths is answered 405 with what is allowed.
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(status_page))
        .fallback(unknown)
        .with_state(Arc::new(Shown { status, facts, clock }))
}

async fn metrics(State(shown): State<Arc<Shown>>, headers: HeaderMap) -> Response {
    let wanted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let form = metrics::Form::accepted(wanted);
    match metrics::text(&shown.status, (shown.clock)(), form) {
        Ok(text) => ([(header::CONTENT_TYPE, form.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn healthz(State(shown): State<Arc<Shown>>) -> Response {
    verdict(health::alive(&shown.status.now(), &shown.facts, (shown.clock)()))
}

async fn readyz(State(shown): State<Arc<Shown>>) -> Response {
    verdict(health::ready(&shown.status.now(), (shown.clock)()))
}

fn verdict(verdict: health::Verdict) -> Response {
    let code = if verdict.is_good() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(verdict)).into_response()
}

async fn status_page(State(shown): State<Arc<Shown>>) -> Response {
    Json(report::Report::new(&shown.status.now(), &shown.facts, (shown.clock)())).into_response()
}

async fn unknown() -> Response {
    let answer = json!({"error": "not found", "paths": ["/metrics", "/healthz", "/readyz", "/status"]});
    (StatusCode::NOT_FOUND, Json(answer)).into_response()
}

#[cfg(test)]
mod tests;
