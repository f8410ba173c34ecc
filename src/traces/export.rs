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
use openssl::error::ErrorStack;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
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
    chain::Chain,
    config::{Config, TracesTo},
    https,
    printable::printable,
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
        let attributes = vec![
            attribute("service.name", "walpost"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("db.namespace", config.database.database.as_str()),
        ];
        Ok(Exporter {
            client: Client::builder(TokioExecutor::new()).build(https::connector(PATIENCE)?),
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
        let (lost, fault) = match timeout(PATIENCE, self.post(spans)).await {
            Ok(Ok((0, _))) => (0, None),
            Ok(Ok((refused, why))) => (refused.min(count), Some(format!("refused: {why}"))),
            Ok(Err(fault)) => (count, Some(fault)),
            Err(_) => (count, Some(format!("no answer within {PATIENCE:?}"))),
        };
        self.counts.taken(count - lost);
        self.counts.lost(lost);
        let Some(fault) = fault else { return };
        if self.told.is_none_or(|told| told.elapsed() >= TELL) {
            self.told = Some(Instant::now());
            let authority = self.endpoint.authority().map(ToString::to_string).unwrap_or_default();
            tracing::warn!("{lost} spans are lost: {authority} (traces.endpoint): {fault}");
        }
    }

    /// How many spans the collector refuses, and why.
    async fn post(&self, spans: Vec<Span>) -> Result<(usize, String), String> {
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
        let response = self.client.request(request).await.map_err(|error| Chain(&error).to_string())?;
        let status = response.status();
        // Read for others too, so that the connection can be used again.
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        if !status.is_success() {
            return Err(format!("HTTP {status}"));
        }
        let answer = body.ok().and_then(|body| ExportTraceServiceResponse::decode(body.to_bytes()).ok());
        let partly = answer.and_then(|answer| answer.partial_success).unwrap_or_default();
        Ok((usize::try_from(partly.rejected_spans).unwrap_or_default(), printable(partly.error_message.as_bytes())))
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
