//! A record as a request.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT},
};

use super::{
    endpoint::{Endpoint, EndpointError},
    signature,
};
use crate::{pipeline::Record, sink::content_type::content_type};

pub(super) type Body = Full<Bytes>;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const EVENT_ID: HeaderName = HeaderName::from_static("x-event-id");
const EVENT_TYPE: HeaderName = HeaderName::from_static("x-event-type");
const EVENT_POSITION: HeaderName = HeaderName::from_static("x-event-position");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TRACING: [HeaderName; 2] = [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

const WALPOST: HeaderValue = HeaderValue::from_static(concat!("walpost/", env!("CARGO_PKG_VERSION")));

/// Why a record makes no request. No value is repeated.
#[derive(Debug, thiserror::Error)]
pub(super) enum Flaw {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("the value of {0} holds a line break or another byte that HTTP forbids in headers")]
    Header(HeaderName),
}

/// A record as it is sent, but for what tells one try from another.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) endpoint: Endpoint,
    /// What the receiver tells duplicates by, as signatures hold it.
    pub(super) id: String,
    pub(super) body: Bytes,
    headers: HeaderMap,
}

impl Message {
    /// `allowed` are the headers of the record that are passed on, beside those that walpost makes.
    pub(super) fn of(record: &Record<'_>, allowed: &[HeaderName]) -> Result<Message, Flaw> {
        let endpoint = Endpoint::parse(record.topic)?;
        let event = &record.event;
        let key = given(record, "idempotency_key").unwrap_or(event.id);

        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(USER_AGENT, WALPOST);
        if let Some(content_type) = content_type(record) {
            headers.insert(CONTENT_TYPE, header(&CONTENT_TYPE, content_type)?);
        }
        headers.insert(IDEMPOTENCY_KEY, header(&IDEMPOTENCY_KEY, key)?);
        headers.insert(EVENT_ID, header(&EVENT_ID, event.id)?);
        if let Some(event_type) = event.event_type {
            headers.insert(EVENT_TYPE, header(&EVENT_TYPE, event_type)?);
        }
        // Rows that are read from the table have none.
        if let Some(position) = given(record, "position") {
            headers.insert(EVENT_POSITION, header(&EVENT_POSITION, position)?);
        }
        for name in TRACING {
            if let Some(value) = given(record, name.as_str()) {
                let value = header(&name, value)?;
                headers.insert(name, value);
            }
        }
        for name in allowed {
            for (own, value) in record.headers.iter() {
                if let Some(value) = value.filter(|_| name.as_str().eq_ignore_ascii_case(own)) {
                    headers.append(name.clone(), header(name, value)?);
                }
            }
        }
        let body = Bytes::copy_from_slice(record.value.unwrap_or_default());
        Ok(Message { endpoint, id: signature::id(key).to_string(), body, headers })
    }

    /// Signs it: the id, seconds since 1970 and the signature of both and the body.
    pub(super) fn sign(&mut self, timestamp: u64, signature: &str) {
        let ascii = |text: &str| HeaderValue::from_str(text).expect("ids are escaped, signatures are base64");
        self.headers.insert(WEBHOOK_ID, ascii(&self.id));
        self.headers.insert(WEBHOOK_TIMESTAMP, timestamp.into());
        self.headers.insert(WEBHOOK_SIGNATURE, ascii(signature));
    }

    pub(super) fn request(&self, endpoint: &Endpoint) -> Request<Body> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint.uri().clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// The value of a header that is not empty.
fn given<'a>(record: &Record<'a>, name: &str) -> Option<&'a [u8]> {
    record.headers.get(name).filter(|value| !value.is_empty())
}

fn header(name: &HeaderName, value: &[u8]) -> Result<HeaderValue, Flaw> {
    HeaderValue::from_bytes(value).map_err(|_| Flaw::Header(name.clone()))
}
