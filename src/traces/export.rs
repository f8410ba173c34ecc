//! Brings spans to the collector: OTLP over HTTP, in protobuf.
//!
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Uri, header};
use hyper_openssl::client::legacy::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use openssl::{
    error::ErrorStack,
    ssl::{SslConnector, SslMethod, SslVersion},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::InstrumentationScope,
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::Message;
use tokio::{
    sync::{mpsc, oneshot},
    time::{timeout, timeout_at},
};

use super::{Counts, Item, spans::attribute};
use crate::{
    config::{Config, TracesTo},
    postgres::tls::trust_system,
};

/// Most spans of a request.
const BATCH_MAX: usize = 512;
/// How long the first span of a request waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How often it is told that spans are lost.
const TELL: Duration = Duration::from_secs(60);

pub(super) struct Exporter {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Uri,
    resource: Resource,
    counts: Arc<Counts>,
    told: Option<Instant>,
}

impl Exporter {
    pub(super) fn new(config: &Config, to: &TracesTo, counts: Arc<Counts>) -> Result<Exporter, ErrorStack> {
        let mut tls = SslConnector::builder(SslMethod::tls_client())?;
        tls.set_min_proto_version(Some(SslVersion::TLS1_2))?;
        trust_system(&mut tls)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(PATIENCE));
        let connector = HttpsConnector::with_connector(tcp, tls)?;
        let attributes = vec![
            attribute("service.name", "walpost"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("db.namespace", config.database.database.as_str()),
        ];
        Ok(Exporter {
            client: Client::builder(TokioExecutor::new()).build(connector),
            endpoint: to.endpoint.clone(),
            resource: Resource { attributes, ..Resource::default() },
            counts,
            told: None,
        })
    }

    /// Exports until nobody sends any more.
    pub(super) async fn run(mut self, mut items: mpsc::Receiver<Item>) {
        let mut spans = Vec::new();
        while let Some(first) = items.recv().await {
            let mut flush = take(first, &mut spans);
            let until = tokio::time::Instant::now() + GATHER;
            while flush.is_none() && spans.len() < BATCH_MAX {
                let Ok(Some(item)) = timeout_at(until, items.recv()).await else { break };
                flush = take(item, &mut spans);
            }
            if !spans.is_empty() {
                self.export(std::mem::take(&mut spans)).await;
            }
        }
    }

    async fn export(&mut self, spans: Vec<Span>) {
        let count = spans.len();
        let fault = match timeout(PATIENCE, self.post(spans)).await {
            Ok(Ok(())) => return self.counts.taken(count),
            Ok(Err(fault)) => fault,
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        self.counts.lost(count);
        if self.told.is_none_or(|told| told.elapsed() >= TELL) {
            self.told = Some(Instant::now());
            let authority = self.endpoint.authority().map(ToString::to_string).unwrap_or_default();
            tracing::warn!("{count} spans are lost: {authority} (traces.endpoint): {fault}");
        }
    }

    async fn post(&self, spans: Vec<Span>) -> Result<(), String> {
        let scope = InstrumentationScope {
            name: "walpost".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let of_us = ResourceSpans { resource, scope_spans, ..ResourceSpans::default() };
        let body = ExportTraceServiceRequest { resource_spans: vec![of_us] }.encode_to_vec();
        let request = Request::post(self.endpoint.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, concat!("walpost/", env!("CARGO_PKG_VERSION")))
            .body(Full::from(body))
            .expect("endpoint and headers are legal");
        let response = self.client.request(request).await.map_err(|error| chain(&error))?;
        let status = response.status();
        // So that the connection can be used again.
        let _ = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        if status.is_success() { Ok(()) } else { Err(format!("HTTP {status}")) }
    }
}

fn take(item: Item, spans: &mut Vec<Span>) -> Option<oneshot::Sender<()>> {
    match item {
        Item::Span(span) => {
            spans.push(*span);
            None
        }
        Item::Flush(flush) => Some(flush),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    crate::chain::Chain(error).to_string()
}
