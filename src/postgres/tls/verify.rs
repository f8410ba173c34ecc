//! Why a certificate proves nothing, found while OpenSSL verifies it: after a failed handshake it is gone.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use openssl::{
    nid::Nid,
    ssl::Ssl,
    x509::{X509Ref, X509StoreContextRef},
};

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

/// Lets OpenSSL verify as it does, and keeps the first thing that it finds wrong.
pub(super) fn watch(ssl: &mut Ssl, host: &str) -> Arc<OnceLock<CertificateProblem>> {
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
