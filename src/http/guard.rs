//! What every request has to pass, and what every answer carries.
//!
//! A browser on this host reaches a loopback address for any page that asks it to. Such a page is known by what the browser
//! says of it (`Origin`, `Sec-Fetch-Site`), and one whose own name was made to point here by the `Host` it asks for. Other
//! programs say none of that, and are let through.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{Answers, connect::Refused, rate};
use crate::loopback::{host_of, is_loopback};

/// Longest path with query, in bytes.
const TARGET_MAX: usize = 2_048;

/// Of every answer that has none of its own: nothing of it is to be shown inside another page, kept, or taken for a script.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(super) async fn guard(State(answers): State<Arc<Answers>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let mut answer = match refusal(&answers, &parts) {
        Some(refused) => refused.into_response(),
        None if !is_probe(&parts) && !answers.asked.take() => rate::later("walpost is asked too often".to_owned()),
        None => next.run(Request::from_parts(parts, body)).await,
    };
    for (name, value) in HEADERS {
        answer.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    answer
}

/// Whoever restarts what does not answer has an answer, whatever others ask.
fn is_probe(parts: &Parts) -> bool {
    matches!(parts.uri.path(), "/healthz" | "/readyz")
}

fn refusal(answers: &Answers, parts: &Parts) -> Option<Refused> {
    let Parts { uri, headers, method, .. } = parts;
    if uri.path_and_query().is_some_and(|target| target.as_str().len() > TARGET_MAX) {
        return Some(Refused::new(StatusCode::URI_TOO_LONG, format!("no path is longer than {TARGET_MAX} bytes")));
    }
    let host = text(headers, header::HOST);
    if answers.access.is_loopback() && host.is_some_and(|host| !is_of_loopback(host)) {
        let message = "http.listen is a loopback address, and answers to its own names only: ask for localhost";
        return Some(Refused::new(StatusCode::MISDIRECTED_REQUEST, message.to_owned()));
    }
    let strange = || Refused::new(StatusCode::FORBIDDEN, "a page of another origin may not ask this".to_owned());
    let origin = headers.get(header::ORIGIN);
    if origin.is_some_and(|origin| !is_of_host(origin, host)) {
        return Some(strange());
    }
    match text(headers, HeaderName::from_static("sec-fetch-site")) {
        None | Some("same-origin" | "none") => None,
        // A link to the page that somebody follows; whoever made it learns nothing.
        Some(_) if is_link(headers) && *method == Method::GET && uri.path() == "/" => None,
        Some(_) => Some(strange()),
    }
}

/// A browser follows a link, and shows the answer by itself.
fn is_link(headers: &HeaderMap) -> bool {
    let is = |name, value| text(headers, HeaderName::from_static(name)) == Some(value);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Whether a `Host` names this host by itself, with whatever port: a tunnel may have another.
fn is_of_loopback(host: &str) -> bool {
    let name = host_of(host);
    // Browsers ask no resolver for what ends so.
    is_loopback(name) || name.trim_end_matches('.').to_ascii_lowercase().ends_with(".localhost")
}

/// Whether an `Origin` is the one that is asked.
fn is_of_host(origin: &HeaderValue, host: Option<&str>) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.zip(host).is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(host))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    // What is no text matches nothing.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_loopback_alone() {
        for own in
            ["localhost", "localhost:9464", "LocalHost.:1", "a.localhost:1", "127.0.0.1:9464", "127.9.9.9", "[::1]"]
        {
            assert!(is_of_loopback(own), "{own}");
        }
        for other in
            ["", "evil.example", "localhost.evil.example:9464", "10.0.0.1", "[::2]:1", "127.0.0.1.evil.example", "?"]
        {
            assert!(!is_of_loopback(other), "{other}");
        }
    }

    #[test]
    fn an_origin_is_compared_whole() {
        let is = |origin, host| is_of_host(&HeaderValue::from_static(origin), Some(host));
        assert!(is("http://localhost:9464", "localhost:9464"));
        for (origin, host) in [
            ("null", "localhost:9464"),
            ("http://localhost:1", "localhost:9464"),
            ("http://localhost:9464.evil.example", "localhost:9464"),
            ("http://127.0.0.1:9464", "localhost:9464"),
        ] {
            assert!(!is(origin, host), "{origin}");
        }
    }
}
