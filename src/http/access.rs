//! Who may change the stream over HTTP.
//!
//! A token where one is configured. Without one, whoever reaches a loopback address, but for pages in a browser, which
//! reach it on behalf of strangers; and nobody where the address is another one.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use secrecy::{ExposeSecret, SecretString};

use super::{Answers, connect::Refused};

/// Whom changing calls are open to.
#[derive(Clone, Debug)]
pub enum Access {
    /// Whoever shows the token.
    Token(SecretString),
    /// Programs of this host.
    Loopback,
    Nobody,
}

impl Access {
    /// Of what listens at an address with or without a token (`http.token_file`).
    pub fn of(address: SocketAddr, token: Option<SecretString>) -> Access {
        match token {
            Some(token) => Access::Token(token),
            None if address.ip().to_canonical().is_loopback() => Access::Loopback,
            None => Access::Nobody,
        }
    }

    fn judge(&self, headers: &HeaderMap) -> Result<(), Denied> {
        match self {
            Access::Token(token) if shows(headers, token) => Ok(()),
            Access::Token(_) => Err(Denied::WrongToken),
            // A browser names the page's origin with each call of another method than GET and HEAD.
            Access::Loopback if headers.contains_key(header::ORIGIN) => Err(Denied::Browser),
            Access::Loopback => Ok(()),
            Access::Nobody => Err(Denied::NoToken),
        }
    }
}

/// `Bearer` and the token, or `Basic` with the token as the password of any user, which is what tools of Kafka Connect can
/// be given.
fn shows(headers: &HeaderMap, token: &SecretString) -> bool {
    let Some(given) = headers.get(header::AUTHORIZATION).and_then(|given| given.to_str().ok()) else { return false };
    let Some((scheme, credentials)) = given.split_once(' ') else { return false };
    let credentials = credentials.trim();
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => is_same(credentials.as_bytes(), token),
        "basic" => BASE64_STANDARD.decode(credentials).is_ok_and(|pair| {
            let colon = pair.iter().position(|byte| *byte == b':');
            colon.is_some_and(|colon| is_same(&pair[colon + 1..], token))
        }),
        _ => false,
    }
}

/// In a time that tells nothing of where they differ.
fn is_same(given: &[u8], token: &SecretString) -> bool {
    let token = token.expose_secret().as_bytes();
    given.len() == token.len() && openssl::memcmp::eq(given, token)
}

/// Why a changing call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("this call needs the token of http.token_file, as `Authorization: Bearer …` or as the password of `Basic`")]
    WrongToken,
    #[error("a page in a browser may not make this call without a token; set http.token_file")]
    Browser,
    #[error("this call needs a token where http.listen is no loopback address; set http.token_file")]
    NoToken,
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        match self {
            Denied::WrongToken => {
                let ask = [(header::WWW_AUTHENTICATE, "Bearer realm=\"walpost\", Basic realm=\"walpost\"")];
                (ask, Refused::new(StatusCode::UNAUTHORIZED, self.to_string())).into_response()
            }
            Denied::Browser | Denied::NoToken => Refused::new(StatusCode::FORBIDDEN, self.to_string()).into_response(),
        }
    }
}

/// The request may change the stream.
pub(super) struct Allowed;

impl FromRequestParts<Arc<Answers>> for Allowed {
    type Rejection = Denied;

    async fn from_request_parts(parts: &mut Parts, answers: &Arc<Answers>) -> Result<Allowed, Denied> {
        answers.access.judge(&parts.headers).map(|()| Allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(listen: &str, token: Option<&str>, given: &[(&'static str, &str)]) -> Result<(), Denied> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, value.parse().unwrap());
        }
        Access::of(listen.parse().unwrap(), token.map(Into::into)).judge(&headers)
    }

    #[test]
    fn loopback_needs_no_token_and_other_addresses_do() {
        for loopback in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(judge(loopback, None, &[]), Ok(()), "{loopback}");
        }
        for other in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            assert_eq!(judge(other, None, &[]), Err(Denied::NoToken), "{other}");
            assert_eq!(judge(other, None, &[("authorization", "Bearer ")]), Err(Denied::NoToken), "{other}");
            assert_eq!(judge(other, Some("t"), &[]), Err(Denied::WrongToken), "{other}");
            assert_eq!(judge(other, Some("t"), &[("authorization", "Bearer t")]), Ok(()), "{other}");
        }
    }

    #[test]
    fn a_token_that_is_set_is_asked_for_on_loopback_too() {
        let judge = |given: &str| judge("127.0.0.1:1", Some("s3cret"), &[("authorization", given)]);
        for right in ["Bearer s3cret", "bearer  s3cret", "Basic YW55Om1lOnMzY3JldA=="] {
            let expected = if right.starts_with("Basic") { Err(Denied::WrongToken) } else { Ok(()) };
            assert_eq!(judge(right), expected, "{right}");
        }
        assert_eq!(judge(&format!("Basic {}", BASE64_STANDARD.encode("any:s3cret"))), Ok(()));
        for wrong in ["", "s3cret", "Bearer", "Bearer s3cre", "Bearer s3cretx", "Basic s3cret", "Digest s3cret"] {
            assert_eq!(judge(wrong), Err(Denied::WrongToken), "{wrong}");
        }
    }

    #[test]
    fn a_page_in_a_browser_reaches_loopback_for_strangers() {
        let origin = ("origin", "http://127.0.0.1:1");
        assert_eq!(judge("127.0.0.1:1", None, &[origin]), Err(Denied::Browser));
        assert_eq!(judge("127.0.0.1:1", Some("t"), &[origin, ("authorization", "Bearer t")]), Ok(()));
    }
}
