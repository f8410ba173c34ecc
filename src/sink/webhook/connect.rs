//! The way to a receiver: which addresses are connected to, and TLS.
//!
//! What is checked is the address that is connected to, in the one place where connections are made: a name that resolves to
//! another address the next time gains nothing. No proxy is asked, whatever the environment says.

use std::{
    error::Error,
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
    vec,
};

use hyper::{Uri, http::uri::Scheme};
use hyper_openssl::client::legacy::HttpsConnector;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, dns::Name},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use openssl::{
    error::ErrorStack,
    ssl::{ConnectConfiguration, SslConnector, SslMethod, SslVersion},
};
use tokio::net::{TcpStream, lookup_host};
use tower_service::Service;

use super::{endpoint::literal, public::is_public, request::Body};
use crate::{config::Webhook, postgres::tls::trust_system};

/// ALPN: HTTP/2, else HTTP/1.1, each with its length before it.
const ALPN: &[u8] = b"\x02h2\x08http/1.1";
/// How long a connection is kept that nothing uses.
const IDLE: Duration = Duration::from_secs(30);
/// How often a connection of HTTP/2 is asked whether it lives, and how long it may take to answer.
const PING: Duration = Duration::from_secs(10);

type Boxed = Box<dyn Error + Send + Sync>;
type Later<T> = Pin<Box<dyn Future<Output = Result<T, Boxed>> + Send>>;

pub(super) type Http = Client<HttpsConnector<Dial>, Body>;

/// A client that connects when there is something to send.
pub(super) fn client(webhook: &Webhook) -> Result<Http, ErrorStack> {
    let mut tls = SslConnector::builder(SslMethod::tls_client())?;
    tls.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    tls.set_alpn_protos(ALPN)?;
    trust_system(&mut tls)?;
    for authority in &webhook.authorities {
        tls.cert_store_mut().add_cert(authority.clone())?;
    }
    let mut connector = HttpsConnector::with_connector(Dial::new(webhook), tls)?;
    connector.set_callback(verify_bracketed);
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(webhook.lanes)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .http2_keep_alive_while_idle(true)
        .build(connector))
}

/// A host in brackets must be in the certificate as an address; the connector would look for the brackets too.
fn verify_bracketed(tls: &mut ConnectConfiguration, uri: &Uri) -> Result<(), ErrorStack> {
    let bracketed = uri.host().is_some_and(|host| host.starts_with('['));
    if let Some(address) = literal(uri).filter(|_| bracketed) {
        tls.set_verify_hostname(false);
        tls.set_use_server_name_indication(false);
        tls.param_mut().set_ip(address)?;
    }
    Ok(())
}

/// Connects to addresses that are allowed.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    https: (Rule, HttpConnector<Resolver>),
    http: (Rule, HttpConnector<Resolver>),
}

impl Dial {
    fn new(webhook: &Webhook) -> Dial {
        let by = |rule| {
            let mut connector = HttpConnector::new_with_resolver(Resolver(rule));
            connector.enforce_http(false);
            connector.set_nodelay(true);
            // Shared among the addresses of a name, so that the first does not take all of the time.
            connector.set_connect_timeout(Some(webhook.timeout));
            (rule, connector)
        };
        let allow_private = webhook.allow_private;
        Dial { https: by(Rule { allow_private, plain: false }), http: by(Rule { allow_private, plain: true }) }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = Boxed;
    type Future = Later<TokioIo<TcpStream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (rule, connector) = if uri.scheme() == Some(&Scheme::HTTPS) { &mut self.https } else { &mut self.http };
        // The resolver is not asked for an address.
        if let Some(Err(not_allowed)) = literal(&uri).map(|address| rule.judge(address)) {
            return Box::pin(async move { Err(not_allowed.into()) });
        }
        let connecting = connector.call(uri);
        Box::pin(async move { connecting.await.map_err(Into::into) })
    }
}

/// Gives of a name's addresses those that are allowed.
#[derive(Clone, Debug)]
pub(super) struct Resolver(Rule);

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Boxed;
    type Future = Later<vec::IntoIter<SocketAddr>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Resolver(rule) = *self;
        Box::pin(async move {
            let (mut allowed, mut refusal) = (Vec::new(), None);
            for address in lookup_host((name.as_str(), 0)).await? {
                match rule.judge(address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(not_allowed) => refusal = Some(not_allowed),
                }
            }
            match refusal {
                Some(not_allowed) if allowed.is_empty() => Err(Resolved(not_allowed).into()),
                Some(_) | None => Ok(allowed.into_iter()),
            }
        })
    }
}

/// Which addresses are allowed: public ones over TLS, and private ones, also without, where `webhook.allow_private` says so.
#[derive(Clone, Copy, Debug)]
struct Rule {
    allow_private: bool,
    plain: bool,
}

impl Rule {
    fn judge(self, address: IpAddr) -> Result<(), NotAllowed> {
        match (is_public(address), self.allow_private) {
            (false, false) => Err(NotAllowed::Private(address)),
            (true, _) if self.plain => Err(NotAllowed::Plain(address)),
            (true, _) | (false, true) => Ok(()),
        }
    }
}

/// An address in the URL that is not connected to.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum NotAllowed {
    #[error("{0} is a private address; webhook.allow_private = true allows it")]
    Private(IpAddr),
    #[error("{0} is a public address, where nothing is sent without TLS; write https")]
    Plain(IpAddr),
}

/// The same of a name, which may have another address the next time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name has no address that is connected to: {0}")]
struct Resolved(NotAllowed);
