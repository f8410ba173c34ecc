//! TLS by libpq's rules, for both kinds of connection.
//!
//! The [rules](https://www.postgresql.org/docs/current/libpq-ssl.html) that surprise: a root certificate at hand
//! (named, or `~/.postgresql/root.crt`) is always verified against, so that `require` then means `verify-ca`;
//! `sslrootcert=system` demands `verify-full`. Stricter than libpq in two points: an `sslrootcert` that is named and
//! does not exist is an error in every mode, and a numeric host must be in the certificate as an address.

mod error;
mod verify;

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    pin::Pin,
};

use openssl::{
    error::ErrorStack,
    hash::MessageDigest,
    nid::Nid,
    pkey::PKey,
    ssl::{SslConnector, SslConnectorBuilder, SslMethod, SslRef, SslVerifyMode, SslVersion},
    x509::{X509, store::X509StoreBuilder},
};
use secrecy::ExposeSecret;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tokio_openssl::SslStream;

pub use self::{error::TlsError, verify::CertificateProblem};
use super::{
    conninfo::{RootCertificate, TlsMode, TlsNegotiation, TlsSettings, TlsVersion},
    error::Error,
    socket::{Address, Socket},
};

/// Bytes read at a time below OpenSSL.
const READ_BYTES: usize = 64 * 1024;

/// ALPN of PostgreSQL's protocol, with its length before it.
const ALPN: &[u8] = b"\x0apostgresql";

/// Turns a plain connection into TLS. `Ok` with the plain socket when the server has none and the mode bears it.
pub(super) async fn negotiate(
    settings: &TlsSettings,
    mut stream: TcpStream,
    address: &Address,
) -> Result<Socket, Error> {
    let connector = connector(settings)?;
    if settings.negotiation == TlsNegotiation::Postgres {
        match ask(&mut stream).await? {
            b'S' => {}
            b'N' if matches!(settings.mode, TlsMode::Prefer) => return Ok(Socket::Tcp(stream)),
            b'N' => return Err(TlsError::Unoffered { at: address.clone(), mode: settings.mode }.into()),
            b'E' => return Err(TlsError::Answer { at: address.clone() }.into()),
            _ => return Err(Error::protocol("the answer to the request for TLS is neither yes nor no")),
        }
    }
    let host = match address {
        Address::Tcp { name, .. } => &**name,
        Address::Unix(_) => "",
    };
    let mut configuration = connector.configure().map_err(TlsError::Setup)?;
    configuration.set_verify_hostname(settings.mode == TlsMode::VerifyFull);
    configuration.set_use_server_name_indication(settings.server_name_indication);
    let mut ssl = configuration.into_ssl(host).map_err(TlsError::Setup)?;
    let problem = verify::watch(&mut ssl, host);
    let stream = BufReader::with_capacity(READ_BYTES, stream);
    let mut stream = SslStream::new(ssl, stream).map_err(TlsError::Setup)?;
    if let Err(cause) = Pin::new(&mut stream).connect().await {
        let at = address.clone();
        return Err(match problem.get() {
            Some(problem) => TlsError::Certificate { at, problem: problem.clone() },
            None => TlsError::Handshake { at, cause },
        }
        .into());
    }
    if settings.negotiation == TlsNegotiation::Direct && stream.ssl().selected_alpn_protocol() != Some(&ALPN[1..]) {
        return Err(TlsError::Protocol { at: address.clone() }.into());
    }
    Ok(Socket::Tls(Box::new(stream)))
}

/// Sends SSLRequest and reads its answer: one byte and not more, for what follows must come through TLS.
async fn ask(stream: &mut TcpStream) -> Result<u8, Error> {
    let mut request = bytes::BytesMut::new();
    postgres_protocol::message::frontend::ssl_request(&mut request);
    stream.write_all(&request).await.map_err(Error::Io)?;
    stream.read_u8().await.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Closed,
        _ => Error::Io(error),
    })
}

/// The hash of the server's certificate that SCRAM binds to (RFC 5929, tls-server-end-point).
pub(super) fn server_end_point(ssl: &SslRef) -> Option<Vec<u8>> {
    let certificate = ssl.peer_certificate()?;
    let algorithms = certificate.signature_algorithm().object().nid().signature_algorithms()?;
    let digest = match algorithms.digest {
        Nid::MD5 | Nid::SHA1 => MessageDigest::sha256(),
        nid => MessageDigest::from_nid(nid)?,
    };
    certificate.digest(digest).ok().map(|hash| hash.to_vec())
}

fn connector(settings: &TlsSettings) -> Result<SslConnector, TlsError> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(version(settings.version_min)))?;
    builder.set_max_proto_version(settings.version_max.map(version))?;
    if settings.negotiation == TlsNegotiation::Direct {
        builder.set_alpn_protos(ALPN)?;
    }
    let verified = trust(settings, &mut builder)?;
    builder.set_verify(if verified { SslVerifyMode::PEER } else { SslVerifyMode::NONE });
    present(settings, &mut builder)?;
    Ok(builder.build())
}

fn version(version: TlsVersion) -> SslVersion {
    match version {
        TlsVersion::V1_0 => SslVersion::TLS1,
        TlsVersion::V1_1 => SslVersion::TLS1_1,
        TlsVersion::V1_2 => SslVersion::TLS1_2,
        TlsVersion::V1_3 => SslVersion::TLS1_3,
    }
}

/// Decides whom to trust; gives whether the server's certificate is verified.
fn trust(settings: &TlsSettings, builder: &mut SslConnectorBuilder) -> Result<bool, TlsError> {
    let path = match &settings.root {
        RootCertificate::System => {
            trust_system(builder)?;
            return Ok(true);
        }
        RootCertificate::File(path) => path,
        RootCertificate::Default(Some(path)) if path.exists() => path,
        RootCertificate::Default(path) => {
            return match settings.mode {
                TlsMode::VerifyCa | TlsMode::VerifyFull => {
                    Err(TlsError::NoRoot { mode: settings.mode, path: path.clone() })
                }
                TlsMode::Disable | TlsMode::Allow | TlsMode::Prefer | TlsMode::Require => Ok(false),
            };
        }
    };
    let content = |cause| TlsError::Content { keyword: "sslrootcert", path: path.clone(), cause };
    let authorities = X509::stack_from_pem(&read("sslrootcert", path)?).map_err(content)?;
    if authorities.is_empty() {
        return Err(TlsError::NoCertificate { path: path.clone() });
    }
    // Only these: the connector's own store would trust the system's as well.
    let mut store = X509StoreBuilder::new()?;
    for authority in authorities {
        store.add_cert(authority).map_err(content)?;
    }
    builder.set_cert_store(store.build());
    Ok(true)
}

/// OpenSSL's default places, which are right when OpenSSL is the system's. One built into walpost looks where Linux
/// distributions keep their bundle.
pub(crate) fn trust_system(builder: &mut SslConnectorBuilder) -> Result<(), ErrorStack> {
    let bundles = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    let bundle = bundles.into_iter().find(|path| Path::new(path).exists());
    match bundle {
        Some(bundle) if cfg!(feature = "vendored-openssl") && std::env::var_os("SSL_CERT_FILE").is_none() => {
            builder.set_ca_file(bundle)
        }
        _ => Ok(()),
    }
}

/// Loads the client's certificate and key, named or at their default places.
fn present(settings: &TlsSettings, builder: &mut SslConnectorBuilder) -> Result<(), TlsError> {
    let at_home = |name: &str| settings.home.as_ref().map(|home| home.join(name));
    let default = || at_home("postgresql.crt").filter(|path| path.exists());
    let Some(certificate) = settings.certificate.clone().or_else(default) else { return Ok(()) };
    let key = settings.key.clone().or_else(|| at_home("postgresql.key")).unwrap_or_else(|| certificate.clone());

    read("sslcert", &certificate)?;
    let content = |cause| TlsError::Content { keyword: "sslcert", path: certificate.clone(), cause };
    builder.set_certificate_chain_file(&certificate).map_err(content)?;

    let bytes = read("sslkey", &key)?;
    let metadata = fs::metadata(&key).map_err(|source| TlsError::File { keyword: "sslkey", path: key.clone(), source });
    let metadata = metadata?;
    let open_to = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.permissions().mode() & open_to != 0 {
        return Err(TlsError::KeyPermissions { path: key });
    }
    let content = |cause| TlsError::Content { keyword: "sslkey", path: key.clone(), cause };
    // An empty password rather than none, with which OpenSSL would ask on the terminal.
    let password = settings.key_password.as_ref().map_or("", |password| password.expose_secret());
    let parsed = PKey::private_key_from_pem_passphrase(&bytes, password.as_bytes());
    let parsed = parsed.or_else(|error| PKey::private_key_from_der(&bytes).map_err(|_| error)).map_err(content)?;
    builder.set_private_key(&parsed).map_err(content)?;
    builder.check_private_key().map_err(content)
}

fn read(keyword: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::File { keyword, path: path.to_owned(), source })
}
