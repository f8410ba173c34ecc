//! Signatures after [Standard Webhooks](https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md):
//! HMAC-SHA256 over `id.timestamp.body`, in base64, one for each secret.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use openssl::{
    error::ErrorStack,
    hash::MessageDigest,
    pkey::{PKey, Private},
    sign::Signer,
};
use percent_encoding::{AsciiSet, CONTROLS, PercentEncode, percent_encode};
use secrecy::ExposeSecret;

use crate::config::SigningKey;

/// What an id must not hold: a full stop would let its end pass for the timestamp.
const NOT_IN_IDS: &AsciiSet = &CONTROLS.add(b' ').add(b'.').add(b'%');

/// The secrets that a webhook is signed with: one, or two while receivers go from one to the other.
#[derive(Debug)]
pub(super) struct Signature(Vec<PKey<Private>>);

impl Signature {
    pub(super) fn new(keys: &[SigningKey]) -> Result<Signature, ErrorStack> {
        keys.iter().map(|key| PKey::hmac(key.bytes().expose_secret())).collect::<Result<_, _>>().map(Signature)
    }

    /// Whether there is anything to sign with.
    pub(super) fn is_set(&self) -> bool {
        !self.0.is_empty()
    }

    /// `webhook-signature`: `v1,…` for each secret, joined by a space. `timestamp` in seconds since 1970.
    pub(super) fn of(&self, id: &str, timestamp: u64, body: &[u8]) -> Result<String, ErrorStack> {
        let head = format!("{id}.{timestamp}.");
        let mut text = String::new();
        for key in &self.0 {
            let mut signer = Signer::new(MessageDigest::sha256(), key)?;
            signer.update(head.as_bytes())?;
            signer.update(body)?;
            let space = if text.is_empty() { "" } else { " " };
            write!(text, "{space}v1,{}", STANDARD.encode(signer.sign_to_vec()?)).expect("a String takes any text");
        }
        Ok(text)
    }
}

/// `webhook-id` of a key: the key, with `.`, `%` and what is not visible ASCII as `%2E`.
pub(super) fn id(key: &[u8]) -> PercentEncode<'_> {
    percent_encode(key, NOT_IN_IDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEXT: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn signature(keys: &[&str]) -> Signature {
        Signature::new(&keys.iter().map(|key| SigningKey::parse(key).unwrap()).collect::<Vec<_>>()).unwrap()
    }

    /// The first is of the specification's own libraries; the others are Python's `hmac.new(key, content, 'sha256')`.
    #[test]
    fn signatures_are_those_of_other_implementations() {
        let one = signature(&[KEY]);
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            one.of("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body).unwrap(),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        assert_eq!(one.of("e-1", 1, b"").unwrap(), "v1,l9Y28vP62FBCrfPdODUI4lfe8hJFz8DOpG0H6ZnVKVc=");
        assert_eq!(
            signature(&[KEY, NEXT]).of("e-1", 1, b"\xff\x00\n").unwrap(),
            "v1,Pt7paXkJjZw/jylQdA8WyhHl7o356v9jsF9VuNDNJeM= v1,9hMT+GrWwnieQ0gbpyTdml6ops7Ow4fIaozJ2yIuy+o="
        );
        assert!(!signature(&[]).is_set());
    }

    #[test]
    fn an_id_has_one_meaning() {
        assert_eq!(id(b"018f-7d").to_string(), "018f-7d");
        assert_eq!(id(b"order.42").to_string(), "order%2E42");
        assert_eq!(id(b"order%2E42").to_string(), "order%252E42");
        assert_eq!(id("ä b\r\n".as_bytes()).to_string(), "%C3%A4%20b%0D%0A");
    }
}
