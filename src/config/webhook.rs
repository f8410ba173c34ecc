//! `[webhook]`: what it means.

use std::{path::Path, sync::Arc, time::Duration};

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use hyper::header::HeaderName;
use openssl::x509::X509;
use secrecy::{ExposeSecret, SecretSlice, SecretString};

use super::{ConfigError, Origin, Settings, resolve::warn_of_flag, typed};

/// How secrets of Standard Webhooks begin.
const PREFIX: &str = "whsec_";
/// Their least and most bytes, decoded.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// As other implementations take them: with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Headers that a row does not set: walpost makes them, or they belong to the connection.
const TAKEN: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];
/// So do all that begin so.
const TAKEN_PREFIX: &str = "x-event-";

/// `[webhook]`: how records are posted.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// How long one try may take, from the connection to the head of the answer.
    pub timeout: Duration,
    /// Tries of a record before it counts as undeliverable.
    pub attempts_max: u32,
    /// The pause after the first try; it doubles with each.
    pub backoff: Duration,
    /// The longest of these pauses.
    pub backoff_max: Duration,
    /// Most requests at once.
    pub lanes: usize,
    /// The record's headers that are passed on.
    pub headers: Vec<HeaderName>,
    /// Whether addresses are connected to that only this network reaches.
    pub allow_private: bool,
    /// Trusted beside the system's (`webhook.ca_file`).
    pub authorities: Vec<X509>,
    /// What requests are signed with; none: they are not.
    pub secrets: Vec<SigningKey>,
}

/// A secret of Standard Webhooks.
#[derive(Clone, Debug)]
pub struct SigningKey(Arc<SecretSlice<u8>>);

impl SigningKey {
    /// Reads `whsec_` and base64. The error does not repeat the text.
    pub fn parse(text: &str) -> Result<SigningKey, String> {
        let encoded = text
            .strip_prefix(PREFIX)
            .ok_or("this does not begin with whsec_, as a secret of Standard Webhooks does")?;
        let key = BASE64.decode(encoded).map_err(|_| "what follows whsec_ is no base64")?;
        if !KEY_BYTES.contains(&key.len()) {
            return Err(format!(
                "the secret has {} bytes; take {} to {}, as in whsec_ and the output of `openssl rand -base64 32`",
                key.len(),
                KEY_BYTES.start(),
                KEY_BYTES.end()
            ));
        }
        Ok(SigningKey(Arc::new(key.into())))
    }

    pub fn bytes(&self) -> &SecretSlice<u8> {
        &self.0
    }
}

impl Settings {
    pub(super) fn webhook(&self, typed: &typed::Webhook) -> Result<Webhook, ConfigError> {
        if typed.timeout.is_zero() {
            return Err(self.refuse("webhook.timeout", "this must be above 0, as in \"10s\""));
        }
        if typed.backoff.is_zero() || typed.backoff > typed.backoff_max {
            let problem = "this must be above 0 and at most webhook.backoff_max, as in \"1s\"";
            return Err(self.refuse("webhook.backoff", problem));
        }
        let current = self.signing_key("webhook.secret", typed.secret.as_ref(), typed.secret_file.as_deref())?;
        let next =
            self.signing_key("webhook.secret_next", typed.secret_next.as_ref(), typed.secret_next_file.as_deref())?;
        if current.is_none() && next.is_some() {
            let problem = "webhook.secret is not set, which this is to follow; give the only secret there";
            return Err(self.refuse("webhook.secret_next", problem));
        }
        Ok(Webhook {
            timeout: typed.timeout,
            attempts_max: u32::try_from(typed.attempts_max).unwrap_or(u32::MAX),
            backoff: typed.backoff,
            backoff_max: typed.backoff_max,
            lanes: typed.lanes,
            headers: self.passed_on(&typed.headers)?,
            allow_private: typed.allow_private,
            authorities: typed.ca_file.as_deref().map_or(Ok(Vec::new()), |file| self.authorities(file))?,
            secrets: current.into_iter().chain(next).collect(),
        })
    }

    /// `path`, or the same with `_file`.
    fn signing_key(
        &self,
        path: &str,
        secret: Option<&SecretString>,
        file: Option<&str>,
    ) -> Result<Option<SigningKey>, ConfigError> {
        let file_path = format!("{path}_file");
        let (path, secret) = match (secret, file) {
            (Some(secret), _) => (path, secret.clone()),
            (None, Some(file)) => (file_path.as_str(), self.secret(&file_path, file)?),
            (None, None) => return Ok(None),
        };
        let place = self.place(path);
        if !path.ends_with("_file") && matches!(place.origin, Origin::Flag(_)) {
            warn_of_flag(&place, &format!("a variable, or {path}_file"));
        }
        SigningKey::parse(secret.expose_secret()).map(Some).map_err(|problem| self.refuse(path, problem))
    }

    fn passed_on(&self, names: &[String]) -> Result<Vec<HeaderName>, ConfigError> {
        let mut headers = Vec::new();
        for name in names {
            let refuse = |problem: String| Err(self.refuse("webhook.headers", problem));
            let Ok(header) = name.parse::<HeaderName>() else {
                return refuse(format!("{name:?} is no name of a header; write letters, digits and '-'"));
            };
            if TAKEN.contains(&header.as_str()) || header.as_str().starts_with(TAKEN_PREFIX) {
                return refuse(format!("a row cannot set {name}: walpost or the connection does; leave it out"));
            }
            if !headers.contains(&header) {
                headers.push(header);
            }
        }
        Ok(headers)
    }

    fn authorities(&self, file: &str) -> Result<Vec<X509>, ConfigError> {
        const PATH: &str = "webhook.ca_file";
        let file = Path::new(file);
        let pem = std::fs::read(file).map_err(|source| ConfigError::SecretFile {
            place: self.place(PATH),
            file: file.to_owned(),
            source,
        })?;
        match X509::stack_from_pem(&pem) {
            Ok(authorities) if !authorities.is_empty() => Ok(authorities),
            Ok(_) | Err(_) => {
                Err(self.refuse(PATH, format!("the file {} holds no certificate in PEM", file.display())))
            }
        }
    }
}
