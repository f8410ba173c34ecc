//! What a receiver's answer, or the want of one, means for the record.
//!
//! Nothing of an answer's body or headers gets into a reason, but for the origin that a redirect names.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use hyper::{
    HeaderMap, StatusCode,
    header::{LOCATION, RETRY_AFTER},
    http::response::Parts,
};
use hyper_util::client::legacy;

use super::{connect::NotAllowed, endpoint::Endpoint};
use crate::{postgres::dead_letter::ReasonClass, sink::courier::Outcome};

/// The longest pause that a receiver may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Longest text of a fault below HTTP.
const FAULT_CHARS_MAX: usize = 300;

/// What follows an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done(Outcome),
    /// The same again there, which is in the same origin.
    Follow(Endpoint),
}

/// Judges the head of an answer.
pub(super) fn judge(head: &Parts, endpoint: &Endpoint, now: SystemTime) -> Next {
    let status = head.status;
    let answered = format!("{} answered {}", endpoint.origin(), status.as_u16());
    Next::Done(match status {
        _ if status.is_success() => Outcome::Delivered,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
            let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let Some(location) = location else {
                return Next::Done(rejected(format!("{answered} and does not say where to go")));
            };
            match endpoint.follow(location) {
                Ok(target) => return Next::Follow(target),
                Err(place) => rejected(format!(
                    "{answered} and points to {place}; only its own origin is followed: write the URL where it receives now"
                )),
            }
        }
        _ if status.is_redirection() => {
            let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let place = match location.map(|location| endpoint.follow(location)) {
                Some(Ok(_)) => "its own origin".to_owned(),
                Some(Err(place)) => place,
                None => "nowhere".to_owned(),
            };
            rejected(format!(
                "{answered} and points to {place}; only 307 and 308 are followed: write the URL where it receives now"
            ))
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Outcome::Failed { reason: answered, after: retry_after(&head.headers, now), counts: true }
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => Outcome::failed(answered),
        _ if status.is_server_error() => Outcome::failed(answered),
        StatusCode::PAYLOAD_TOO_LARGE => {
            let reason = format!("{answered}: the payload is larger than the receiver takes");
            Outcome::refused(ReasonClass::TooLarge, reason)
        }
        _ => rejected(answered),
    })
}

/// Judges a request that got no answer. An endpoint that cannot be reached uses up attempts as one that answers badly does:
/// nothing tells a receiver that is down from a destination that is wrong.
pub(super) fn fault(error: &legacy::Error, endpoint: &Endpoint) -> Outcome {
    if let Some(not_allowed) = causes(error).find_map(|cause| cause.downcast_ref::<NotAllowed>()) {
        return Outcome::refused(ReasonClass::Unroutable, format!("{}: {not_allowed}", endpoint.origin()));
    }
    let reason = format!("{}: {}", endpoint.origin(), text(error));
    if reason.contains("certificate verify failed") {
        return Outcome::failed(format!("{reason}; webhook.ca_file adds an authority"));
    }
    Outcome::failed(reason)
}

pub(super) fn rejected(reason: String) -> Outcome {
    Outcome::refused(ReasonClass::Rejected, reason)
}

/// Seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let after = if !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()) {
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(after.min(RETRY_AFTER_MAX))
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (**error).source())
}

/// What the layers say, from the outermost, each once.
fn text(error: &legacy::Error) -> String {
    let mut said = String::new();
    // The outermost says where in the client it was.
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !said.contains(&cause) {
            said.push_str(if said.is_empty() { "" } else { ": " });
            said.push_str(&cause);
        }
    }
    if said.is_empty() {
        said = error.to_string();
    }
    said.chars().filter(|c| !c.is_control()).take(FAULT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use hyper::Response;

    use super::*;

    fn judged(status: u16, headers: &[(&str, &str)]) -> Next {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let head = response.body(()).unwrap().into_parts().0;
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        judge(&head, &Endpoint::parse("https://shop.example/hooks/secret").unwrap(), now)
    }

    #[test]
    fn every_status_has_one_meaning() {
        for status in 200..=599 {
            let meaning = match judged(status, &[]) {
                Next::Done(Outcome::Delivered) => "delivered",
                Next::Done(Outcome::Failed { counts: true, after: None, .. }) => "failed",
                Next::Done(Outcome::Refused { class: ReasonClass::TooLarge, .. }) => "too large",
                Next::Done(Outcome::Refused { class: ReasonClass::Rejected, .. }) => "rejected",
                other => panic!("{status}: {other:?}"),
            };
            let expected = match status {
                200..=299 => "delivered",
                408 | 425 | 429 | 500..=599 => "failed",
                413 => "too large",
                _ => "rejected",
            };
            assert_eq!(meaning, expected, "{status}");
        }
    }

    #[test]
    fn a_receiver_may_ask_for_a_pause() {
        let after = |status, text| match judged(status, &[("retry-after", text)]) {
            Next::Done(Outcome::Failed { after, .. }) => after,
            other => panic!("{other:?}"),
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(after(429, "7"), seconds(7));
        assert_eq!(after(503, " 0 "), seconds(0));
        assert_eq!(after(503, "99999999999999999999999"), seconds(3600));
        assert_eq!(after(429, "Sun, 06 Nov 1994 08:51:37 GMT"), seconds(120));
        assert_eq!(after(429, "Sunday, 06-Nov-94 08:51:37 GMT"), seconds(120));
        assert_eq!(after(429, "Sun, 06 Nov 1994 08:00:00 GMT"), seconds(0));
        assert_eq!(after(429, "Fri, 31 Dec 1999 23:59:59 GMT"), seconds(3600));
        for none in ["", "-1", "1.5", "soon"] {
            assert_eq!(after(429, none), None, "{none:?}");
        }
        assert_eq!(after(500, "7"), None);
    }

    #[test]
    fn a_redirect_elsewhere_is_refused_and_names_no_path() {
        let reason = |status, location| match judged(status, &[("location", location)]) {
            Next::Done(Outcome::Refused { class: ReasonClass::Rejected, reason }) => reason,
            other => panic!("{other:?}"),
        };
        let follow = Next::Follow(Endpoint::parse("https://shop.example/v2").unwrap());
        assert_eq!(judged(307, &[("location", "/v2")]), follow);
        assert_eq!(judged(308, &[("location", "https://shop.example/v2")]), follow);
        assert_eq!(
            reason(308, "http://169.254.169.254/latest/meta-data"),
            "https://shop.example answered 308 and points to http://169.254.169.254; only its own origin is followed: \
             write the URL where it receives now"
        );
        assert_eq!(
            reason(302, "/v2"),
            "https://shop.example answered 302 and points to its own origin; only 307 and 308 are followed: write the \
             URL where it receives now"
        );
    }
}
