//! Who may change the stream over HTTP, and who may read what its rows say.
//!
//! A token where one is configured. Without one, whoever reaches a loopback address, but for pages in a browser, which
//! reach it on behalf of strangers; and nobody where the address is another one. State and numbers are for everybody who
//! reaches the address; ids and keys of events, from elsewhere than this host, for whoever has the token.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use secrecy::{ExposeSecret, SecretString};

use super::{Answers, connect::Refused, rate};

/// Whom calls are open to.
#[derive(Clone, Debug)]
pub struct Access {
    token: Option<SecretString>,
    is_loopback: bool,
}

impl Access {
    /// Of what listens at an address with or without a token (`http.token_file`).
    pub fn of(address: SocketAddr, token: Option<SecretString>) -> Access {
        Access { token, is_loopback: address.ip().to_canonical().is_loopback() }
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// Whether there is a token to show.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    fn may_change(&self, headers: &HeaderMap) -> Result<(), Denied> {
        match &self.token {
            Some(token) if shows(headers, token) => Ok(()),
            Some(_) => Err(Denied::WrongToken),
            // A browser names the page's origin with each call of another method than GET and HEAD.
            None if self.is_loopback && headers.contains_key(header::ORIGIN) => Err(Denied::Browser),
            None if self.is_loopback => Ok(()),
            None => Err(Denied::NoToken),
        }
    }

    fn may_read(&self, headers: &HeaderMap) -> Result<(), Denied> {
        match self.is_loopback {
            true => Ok(()),
            false => self.may_change(headers),
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
    #[error("too many calls had a wrong token; try again in a few seconds")]
    TooMany,
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        match self {
            Denied::WrongToken => {
                let ask = [(header::WWW_AUTHENTICATE, "Bearer realm=\"walpost\", Basic realm=\"walpost\"")];
                (ask, Refused::new(StatusCode::UNAUTHORIZED, self.to_string())).into_response()
            }
            Denied::TooMany => rate::later(self.to_string()),
            Denied::Browser | Denied::NoToken => Refused::new(StatusCode::FORBIDDEN, self.to_string()).into_response(),
        }
    }
}

/// The request may change the stream.
pub(super) struct Allowed;

impl FromRequestParts<Arc<Answers>> for Allowed {
    type Rejection = Denied;

    async fn from_request_parts(parts: &mut Parts, answers: &Arc<Answers>) -> Result<Allowed, Denied> {
        counted(answers, &parts.headers, Access::may_change).map(|()| Allowed)
    }
}

/// The request may read what rows say.
pub(super) struct Reader;

impl FromRequestParts<Arc<Answers>> for Reader {
    type Rejection = Denied;

    async fn from_request_parts(parts: &mut Parts, answers: &Arc<Answers>) -> Result<Reader, Denied> {
        counted(answers, &parts.headers, Access::may_read).map(|()| Reader)
    }
}

/// Judges, and lets nobody guess: after too many wrong tokens none is looked at for a while, the right one neither.
fn counted(
    answers: &Answers,
    headers: &HeaderMap,
    judge: impl FnOnce(&Access, &HeaderMap) -> Result<(), Denied>,
) -> Result<(), Denied> {
    let is_guess = answers.access.has_token() && headers.contains_key(header::AUTHORIZATION);
    if is_guess && answers.guesses.is_empty() {
        return Err(Denied::TooMany);
    }
    judge(&answers.access, headers).inspect_err(|_| {
        if is_guess {
            answers.guesses.take();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(listen: &str, token: Option<&str>, given: &[(&'static str, &str)]) -> Result<(), Denied> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, value.parse().unwrap());
        }
        Access::of(listen.parse().unwrap(), token.map(Into::into)).may_change(&headers)
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
    fn what_rows_say_is_read_on_this_host_or_with_the_token() {
        let read = |listen: &str, token: Option<&str>, given: Option<&str>| {
            let headers = given.map(|given| (header::AUTHORIZATION, given.parse().unwrap()));
            Access::of(listen.parse().unwrap(), token.map(Into::into)).may_read(&headers.into_iter().collect())
        };
        assert_eq!(read("127.0.0.1:1", None, None), Ok(()));
        assert_eq!(read("127.0.0.1:1", Some("t"), None), Ok(()));
        assert_eq!(read("0.0.0.0:1", None, None), Err(Denied::NoToken));
        assert_eq!(read("0.0.0.0:1", Some("t"), None), Err(Denied::WrongToken));
        assert_eq!(read("0.0.0.0:1", Some("t"), Some("Bearer t")), Ok(()));
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
