//! TLS by libpq's rules, for both kinds of connection.
//!
//! The [rules](https://www.postgresql.org/docs/current/libpq-ssl.html) that surprise: a root certificate at hand
//! (named, or `~/.postgresql/root.crt`) is always verified against, so that `require` then means `verify-ca`;
//! `sslrootcert=system` demands `verify-full`. Stricter than libpq in two points: an `sslrootcert` that is named and
//! does not exist is an error in every mode, and a numeric host must be in the certificate as an address.

use std::{
    fmt, fs, io,
    net::IpAddr,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, OnceLock},
};

use openssl::{
    error::ErrorStack,
    hash::MessageDigest,
    nid::Nid,
    pkey::PKey,
    ssl::{self, Ssl, SslConnector, SslConnectorBuilder, SslMethod, SslRef, SslVerifyMode, SslVersion},
    x509::{X509, X509Ref, X509StoreContextRef, store::X509StoreBuilder},
};
use secrecy::ExposeSecret;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tokio_openssl::SslStream;

use super::{
    conninfo::{RootCertificate, TlsMode, TlsNegotiation, TlsSettings, TlsVersion},
    error::{Error, ErrorKind},
    socket::{Address, Socket},
};

/// Bytes read at a time below OpenSSL.
const READ_BYTES: usize = 64 * 1024;

/// ALPN of PostgreSQL's protocol, with its length before it.
const ALPN: &[u8] = b"\x0apostgresql";

/// TLS that could not be had or trusted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The server has none.
    #[error(
        "PostgreSQL at {at} offers no TLS and sslmode={mode} demands it: ALTER SYSTEM SET ssl = on with a certificate in place, then SELECT pg_reload_conf(); or lower sslmode"
    )]
    Unoffered {
        /// Where.
        at: Address,
        /// The mode that demands it.
        mode: TlsMode,
    },
    /// An error in place of the answer; its text is not to be trusted.
    #[error("PostgreSQL at {at} answers the request for TLS with an error")]
    Answer {
        /// Where.
        at: Address,
    },
    /// The server's certificate proves nothing.
    #[error("the certificate of PostgreSQL at {at} {problem}")]
    Certificate {
        /// Where.
        at: Address,
        /// What is wrong with it.
        problem: CertificateProblem,
        /// OpenSSL's words.
        source: ssl::Error,
    },
    /// The handshake failed otherwise.
    #[error("TLS with PostgreSQL at {at} failed")]
    Handshake {
        /// Where.
        at: Address,
        /// Why.
        source: ssl::Error,
    },
    /// The server did not confirm PostgreSQL's protocol after a direct handshake.
    #[error("what answers at {at} does not speak PostgreSQL's protocol over TLS: use sslnegotiation=postgres")]
    Protocol {
        /// Where.
        at: Address,
    },
    /// There is nothing to verify against.
    #[error(
        "sslmode={mode} needs a root certificate, and {} does not exist: name the authority's certificate in sslrootcert, or use sslrootcert=system",
        path_or_default(.path)
    )]
    NoRoot {
        /// The mode.
        mode: TlsMode,
        /// The default file.
        path: Option<PathBuf>,
    },
    /// A file that cannot be read.
    #[error("{keyword} {} cannot be read", .path.display())]
    File {
        /// The setting.
        keyword: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file whose content is not what it should be.
    #[error("{keyword} {} cannot be used{}", .path.display(), if *.keyword == "sslkey" { " (is sslpassword right?)" } else { "" })]
    Content {
        /// The setting.
        keyword: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: ErrorStack,
    },
    /// The key is open to others.
    #[error(
        "sslkey {} can be read by others: chmod 0600 (or 0640 when it belongs to root)", .path.display()
    )]
    KeyPermissions {
        /// The file.
        path: PathBuf,
    },
    /// OpenSSL refuses to be set up.
    #[error("TLS cannot be set up")]
    Setup(#[from] ErrorStack),
}

impl TlsError {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            TlsError::Answer { .. } | TlsError::Handshake { .. } => ErrorKind::Transient,
            TlsError::Unoffered { .. }
            | TlsError::Certificate { .. }
            | TlsError::Protocol { .. }
            | TlsError::NoRoot { .. }
            | TlsError::File { .. }
            | TlsError::Content { .. }
            | TlsError::KeyPermissions { .. }
            | TlsError::Setup(_) => ErrorKind::Permanent,
        }
    }

    /// Whether it is the server or the way to it that failed, so that a plain connection may still work.
    pub(super) fn is_of_the_handshake(&self) -> bool {
        matches!(self, TlsError::Handshake { .. } | TlsError::Certificate { .. } | TlsError::Answer { .. })
    }
}

/// Why a certificate proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateProblem {
    /// Signed by nobody that is trusted.
    UnknownAuthority,
    /// Made out for other names.
    WrongHost {
        /// The host that was asked for.
        host: String,
        /// The names that it is made out for.
        names: Vec<String>,
    },
    /// Past its time.
    Expired,
    /// Before its time.
    NotYetValid,
    /// Anything else, in OpenSSL's words.
    Other(&'static str),
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateProblem::UnknownAuthority => f.write_str(
                "is signed by no authority that is trusted here: name the authority's certificate in sslrootcert",
            ),
            CertificateProblem::WrongHost { host, names } if names.is_empty() => {
                write!(f, "is made out for no host, and sslmode=verify-full wants {host}")
            }
            CertificateProblem::WrongHost { host, names } => {
                write!(f, "is made out for {}, not for {host}: connect by that name", names.join(", "))
            }
            CertificateProblem::Expired => f.write_str("has expired: renew it on the server"),
            CertificateProblem::NotYetValid => f.write_str("is not valid yet: are both clocks right?"),
            CertificateProblem::Other(words) => write!(f, "is not valid: {words}"),
        }
    }
}

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
    let problem = watch(&mut ssl, host);
    let stream = BufReader::with_capacity(READ_BYTES, stream);
    let mut stream = SslStream::new(ssl, stream).map_err(TlsError::Setup)?;
    if let Err(source) = Pin::new(&mut stream).connect().await {
        let at = address.clone();
        return Err(match problem.get() {
            Some(problem) => TlsError::Certificate { at, problem: problem.clone(), source },
            None => TlsError::Handshake { at, source },
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

/// Verifies as OpenSSL does and keeps the first thing that is wrong: after a failed handshake the certificate is gone.
fn watch(ssl: &mut Ssl, host: &str) -> Arc<OnceLock<CertificateProblem>> {
    let problem = Arc::new(OnceLock::new());
    let (found, host, mode) = (Arc::clone(&problem), host.to_owned(), ssl.verify_mode());
    ssl.set_verify_callback(mode, move |valid, chain| {
        if !valid {
            found.get_or_init(|| problem_of(chain, &host));
        }
        valid
    });
    problem
}

fn problem_of(chain: &X509StoreContextRef, host: &str) -> CertificateProblem {
    use openssl_verify_results::*;

    match chain.error().as_raw() {
        UNABLE_TO_GET_ISSUER_CERT
        | DEPTH_ZERO_SELF_SIGNED_CERT
        | SELF_SIGNED_CERT_IN_CHAIN
        | UNABLE_TO_GET_ISSUER_CERT_LOCALLY
        | UNABLE_TO_VERIFY_LEAF_SIGNATURE
        | CERT_SIGNATURE_FAILURE
        | CERT_UNTRUSTED => CertificateProblem::UnknownAuthority,
        CERT_NOT_YET_VALID => CertificateProblem::NotYetValid,
        CERT_HAS_EXPIRED => CertificateProblem::Expired,
        HOSTNAME_MISMATCH | IP_ADDRESS_MISMATCH => CertificateProblem::WrongHost {
            host: host.to_owned(),
            names: chain.current_cert().map(names).unwrap_or_default(),
        },
        _ => CertificateProblem::Other(chain.error().error_string()),
    }
}

/// `X509_V_ERR_*`, which the openssl crate gives as numbers only.
mod openssl_verify_results {
    pub(super) const UNABLE_TO_GET_ISSUER_CERT: i32 = 2;
    pub(super) const CERT_SIGNATURE_FAILURE: i32 = 7;
    pub(super) const CERT_NOT_YET_VALID: i32 = 9;
    pub(super) const CERT_HAS_EXPIRED: i32 = 10;
    pub(super) const DEPTH_ZERO_SELF_SIGNED_CERT: i32 = 18;
    pub(super) const SELF_SIGNED_CERT_IN_CHAIN: i32 = 19;
    pub(super) const UNABLE_TO_GET_ISSUER_CERT_LOCALLY: i32 = 20;
    pub(super) const UNABLE_TO_VERIFY_LEAF_SIGNATURE: i32 = 21;
    pub(super) const CERT_UNTRUSTED: i32 = 27;
    pub(super) const HOSTNAME_MISMATCH: i32 = 62;
    pub(super) const IP_ADDRESS_MISMATCH: i32 = 64;
}

/// The hosts that a certificate is made out for.
fn names(certificate: &X509Ref) -> Vec<String> {
    let alternatives = certificate.subject_alt_names();
    let names: Vec<String> = alternatives
        .iter()
        .flatten()
        .filter_map(|name| name.dnsname().map(str::to_owned).or_else(|| name.ipaddress().and_then(address)))
        .collect();
    if !names.is_empty() {
        return names;
    }
    let common_names = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    common_names.filter_map(|entry| entry.data().to_string().ok()).collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
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
    let content = |source| TlsError::Content { keyword: "sslrootcert", path: path.clone(), source };
    let authorities = X509::stack_from_pem(&read("sslrootcert", path)?).map_err(content)?;
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
fn trust_system(builder: &mut SslConnectorBuilder) -> Result<(), ErrorStack> {
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
    let content = |source| TlsError::Content { keyword: "sslcert", path: certificate.clone(), source };
    builder.set_certificate_chain_file(&certificate).map_err(content)?;

    let bytes = read("sslkey", &key)?;
    let metadata = fs::metadata(&key).map_err(|source| TlsError::File { keyword: "sslkey", path: key.clone(), source });
    let metadata = metadata?;
    let open_to = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.permissions().mode() & open_to != 0 {
        return Err(TlsError::KeyPermissions { path: key });
    }
    let content = |source| TlsError::Content { keyword: "sslkey", path: key.clone(), source };
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

fn path_or_default(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "~/.postgresql/root.crt".to_owned(), |path| path.display().to_string())
}
