//! Connections, one task each, with what a request's head may take in time and size.

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    serve::Listener,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::timeout;
use tower_service::Service;

use super::{connect::Refused, limit::Limited};

/// How long the head of a request may take from its connection's last answer on, in whatever steps it comes: longer than the
/// usual time between two scrapes.
const HEAD_MAX: Duration = Duration::from_secs(75);
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long a call may take, its body included: longer than the database is waited for.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Answers until it is dropped.
pub(super) async fn serve(mut listener: Limited, router: Router) -> Infallible {
    serve_within(&mut listener, router, HEAD_MAX).await
}

pub(super) async fn serve_within(listener: &mut Limited, router: Router, head_max: Duration) -> Infallible {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_max).max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    loop {
        let (guest, _) = listener.accept().await;
        let router = router.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let call = timeout(CALL_MAX, router.clone().call(request.map(Body::new)));
            async { Ok::<_, Infallible>(call.await.map_or_else(|_| too_late(), |Ok(answer)| answer)) }
        });
        let connection = http.serve_connection(TokioIo::new(guest), answer);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of the HTTP surface ended");
            }
        });
    }
}

/// The rest of the body is not waited for.
fn too_late() -> Response {
    let message = format!("the call took longer than {} s", CALL_MAX.as_secs());
    ([(header::CONNECTION, "close")], Refused::new(StatusCode::REQUEST_TIMEOUT, message)).into_response()
}
