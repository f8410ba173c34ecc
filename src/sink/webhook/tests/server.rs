//! Receivers on loopback addresses, with a certificate of their own where they speak TLS.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::to_bytes,
    extract::Request,
    http::{StatusCode, Version},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use openssl::{
    asn1::Asn1Time,
    bn::BigNum,
    ec::{EcGroup, EcKey},
    hash::MessageDigest,
    nid::Nid,
    pkey::PKey,
    ssl::{AlpnError, Ssl, SslAcceptor, SslMethod, select_next_proto},
    x509::{
        X509, X509NameBuilder,
        extension::{BasicConstraints, SubjectAlternativeName},
    },
};
use sha2::Sha256;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::mpsc,
};
use tokio_openssl::SslStream;

/// A request as it arrived.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) version: Version,
    pub(super) path: String,
    pub(super) headers: HashMap<String, Vec<u8>>,
    pub(super) body: Vec<u8>,
}

impl Taken {
    pub(super) fn header(&self, name: &str) -> &str {
        std::str::from_utf8(self.headers.get(name).map_or(b"absent", Vec::as_slice)).unwrap()
    }

    /// What the scheme asks of a receiver: whether one of the signatures is of this secret.
    pub(super) fn is_signed_with(&self, secret: &str) -> bool {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(self.header("webhook-id").as_bytes());
        mac.update(format!(".{}.", self.header("webhook-timestamp")).as_bytes());
        mac.update(&self.body);
        self.header("webhook-signature").split(' ').any(|signature| {
            let given = STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
            mac.clone().verify_slice(&given).is_ok()
        })
    }
}

/// Answers by the path: `/status/503`, `/redirect/307/somewhere`, `/long` with a body, all else 204.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) taken: mpsc::UnboundedReceiver<Taken>,
    connections: Arc<AtomicUsize>,
}

impl Receiver {
    pub(super) async fn plain() -> Receiver {
        Receiver::start("127.0.0.1:0", None).await
    }

    pub(super) async fn tls(at: &str, certificate: &Certificate, protocols: &'static [u8]) -> Receiver {
        Receiver::start(at, Some(certificate.acceptor(protocols))).await
    }

    async fn start(at: &str, tls: Option<SslAcceptor>) -> Receiver {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (to, taken) = mpsc::unbounded_channel();
        let router = Router::new().fallback(move |request: Request| answer(request, to.clone()));
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (tls, router) = (tls.clone(), router.clone());
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve(stream, router).await };
                    let mut stream = SslStream::new(Ssl::new(tls.context()).unwrap(), stream).unwrap();
                    if std::pin::Pin::new(&mut stream).accept().await.is_ok() {
                        serve(stream, router).await;
                    }
                });
            }
        });
        Receiver { address, taken, connections }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let service = TowerToHyperService::new(router);
    // A client that hangs up is none of the receiver's faults.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request, to: mpsc::UnboundedSender<Taken>) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
    to.send(Taken { version: head.version, path: path.clone(), headers, body }).unwrap();
    let status = |text: &str| StatusCode::from_u16(text.parse().unwrap()).unwrap();
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "status", code] => (status(code), [("retry-after", "7")]).into_response(),
        ["", "redirect", code, to] => (status(code), [("location", format!("/{to}"))]).into_response(),
        ["", "elsewhere", code] => (status(code), [("location", "http://localhost:9/secret")]).into_response(),
        ["", "loop"] => (status("307"), [("location", "/loop")]).into_response(),
        ["", "long"] => "thank you, ".repeat(1000).into_response(),
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}

/// One that signed itself.
pub(super) struct Certificate {
    pub(super) authority: X509,
    key: PKey<openssl::pkey::Private>,
}

impl Certificate {
    pub(super) fn of(names: &[&str]) -> Certificate {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", "receiver").unwrap();
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder.set_version(2).unwrap();
        builder.set_serial_number(&BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap()).unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::days_from_now(2).unwrap()).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
        let mut alternatives = SubjectAlternativeName::new();
        for name in names {
            match name.parse::<std::net::IpAddr>() {
                Ok(_) => alternatives.ip(name),
                Err(_) => alternatives.dns(name),
            };
        }
        let alternatives = alternatives.build(&builder.x509v3_context(None, None)).unwrap();
        builder.append_extension(alternatives).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Certificate { authority: builder.build(), key }
    }

    fn acceptor(&self, protocols: &'static [u8]) -> SslAcceptor {
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        acceptor.set_certificate(&self.authority).unwrap();
        acceptor.set_private_key(&self.key).unwrap();
        acceptor
            .set_alpn_select_callback(move |_, offered| select_next_proto(protocols, offered).ok_or(AlpnError::NOACK));
        acceptor.build()
    }
}
