//! Certificates for TLS stories: good ones, and each kind of bad one.

use std::time::{SystemTime, UNIX_EPOCH};

use openssl::{
    asn1::Asn1Time,
    bn::{BigNum, MsbOption},
    ec::{EcGroup, EcKey},
    error::ErrorStack,
    hash::MessageDigest,
    nid::Nid,
    pkey::{PKey, Private},
    x509::{
        X509, X509Builder, X509Name,
        extension::{BasicConstraints, KeyUsage, SubjectAlternativeName},
    },
};

const DAY: i64 = 24 * 3600;

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Who signs.
pub struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

impl Authority {
    pub fn new() -> Authority {
        let made = || {
            let (mut builder, key) = unsigned("walpost tests", 3650)?;
            let name = common_name("walpost tests")?;
            builder.set_issuer_name(&name)?;
            builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
            builder.append_extension(KeyUsage::new().critical().key_cert_sign().crl_sign().build()?)?;
            builder.sign(&key, MessageDigest::sha256())?;
            Ok::<_, ErrorStack>(Authority { certificate: builder.build(), key })
        };
        made().expect("OpenSSL makes an authority")
    }

    /// The certificate that clients are to trust, PEM.
    pub fn pem(&self) -> String {
        text(self.certificate.to_pem().expect("a certificate has a PEM form"))
    }

    /// For 127.0.0.1 and localhost.
    pub fn server(&self) -> Identity {
        self.issue("localhost", SubjectAlternativeName::new().ip("127.0.0.1").dns("localhost"), 30)
    }

    /// For a host that no test connects to.
    pub fn other_host(&self) -> Identity {
        self.issue("elsewhere.example", SubjectAlternativeName::new().dns("elsewhere.example"), 30)
    }

    /// For the right host, but yesterday was its last day.
    pub fn expired(&self) -> Identity {
        self.issue("localhost", SubjectAlternativeName::new().ip("127.0.0.1").dns("localhost"), -1)
    }

    /// Names a client by its common name.
    pub fn client(&self, name: &str) -> Identity {
        self.issue(name, SubjectAlternativeName::new().dns(name), 30)
    }

    fn issue(&self, name: &str, hosts: &SubjectAlternativeName, last_day: i64) -> Identity {
        let made = || {
            let (mut builder, key) = unsigned(name, last_day)?;
            builder.set_issuer_name(self.certificate.subject_name())?;
            let hosts = hosts.build(&builder.x509v3_context(Some(&self.certificate), None))?;
            builder.append_extension(hosts)?;
            builder.sign(&self.key, MessageDigest::sha256())?;
            let certificate = text(builder.build().to_pem()?);
            Ok::<_, ErrorStack>(Identity { certificate, key: text(key.private_key_to_pem_pkcs8()?) })
        };
        made().expect("OpenSSL makes a certificate")
    }
}

/// Valid from ten days ago until the end of a day counted from today.
fn unsigned(name: &str, last_day: i64) -> Result<(X509Builder, PKey<Private>), ErrorStack> {
    let key = PKey::from_ec_key(EcKey::generate(EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?.as_ref())?)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs() as i64;
    let mut serial = BigNum::new()?;
    serial.rand(120, MsbOption::MAYBE_ZERO, false)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(serial.to_asn1_integer()?.as_ref())?;
    builder.set_subject_name(common_name(name)?.as_ref())?;
    builder.set_pubkey(&key)?;
    builder.set_not_before(Asn1Time::from_unix(now - 10 * DAY)?.as_ref())?;
    builder.set_not_after(Asn1Time::from_unix(now + last_day * DAY)?.as_ref())?;
    Ok((builder, key))
}

fn common_name(name: &str) -> Result<X509Name, ErrorStack> {
    let mut builder = X509Name::builder()?;
    builder.append_entry_by_text("CN", name)?;
    Ok(builder.build())
}

fn text(pem: Vec<u8>) -> String {
    String::from_utf8(pem).expect("PEM is ASCII")
}
