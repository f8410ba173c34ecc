//! The connections on which walpost itself asks over HTTP: orders to a running walpost, spans to a collector.

use std::time::Duration;

use hyper_openssl::client::legacy::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use openssl::{
    error::ErrorStack,
    ssl::{SslConnector, SslMethod, SslVersion},
};

use crate::postgres::tls::trust_system;

/// In clear to `http`, else by TLS 1.2 or later, to a server that the system's authorities vouch for.
pub(crate) fn connector(patience: Duration) -> Result<HttpsConnector<HttpConnector>, ErrorStack> {
    let mut tls = SslConnector::builder(SslMethod::tls_client())?;
    tls.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    trust_system(&mut tls)?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(patience));
    HttpsConnector::with_connector(tcp, tls)
}
