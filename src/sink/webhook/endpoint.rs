//! The URL that a record goes to, and where its receiver may point instead.

use std::{fmt, net::IpAddr};

use fluent_uri::{Uri as Rfc3986, UriRef};
use hyper::Uri;

/// An absolute URL of `https` or `http` whose host reads in one way only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(Uri);

/// Why a text is no endpoint. The text is not repeated: paths of webhooks are often secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("the destination is no URL; write it as in https://example.com/hooks")]
    Syntax,
    #[error("the URL's scheme is neither https nor http")]
    Scheme,
    #[error("the URL holds a user or a password; leave them out, receivers verify the signature")]
    Userinfo,
    #[error("the URL's host is none of letters, digits, '-', '_' and '.'; write other letters in punycode, as xn--…")]
    Host,
}

impl Endpoint {
    pub(crate) fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let uri: Uri = text.parse().map_err(|_| EndpointError::Syntax)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(EndpointError::Syntax);
        };
        if scheme != "https" && scheme != "http" {
            return Err(EndpointError::Scheme);
        }
        if authority.as_str().contains('@') {
            return Err(EndpointError::Userinfo);
        }
        let host = authority.host();
        let is_name = !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c));
        let is_address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_address = is_address.is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
        if !is_name && !is_address {
            return Err(EndpointError::Host);
        }
        // What is behind the host is a number, or nothing.
        if authority.as_str().len() > host.len() && authority.port().is_none() {
            return Err(EndpointError::Syntax);
        }
        Ok(Endpoint(uri))
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }

    /// Without the brackets of an address of version 6.
    pub(crate) fn host(&self) -> &str {
        self.0.host().expect("an endpoint has a host").trim_start_matches('[').trim_end_matches(']')
    }

    fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.0.scheme_str() == Some("https") { 443 } else { 80 })
    }

    fn is_of(&self, other: &Endpoint) -> bool {
        self.0.scheme() == other.0.scheme()
            && self.host().eq_ignore_ascii_case(other.host())
            && self.port() == other.port()
    }

    /// Where a `Location` points: `Ok` in the same origin, else the host that it names, for people.
    pub(super) fn follow(&self, location: &str) -> Result<Endpoint, String> {
        let nowhere = || "nowhere that is a URL".to_owned();
        let base = self.0.to_string();
        let base = Rfc3986::parse(base.as_str()).map_err(|_| nowhere())?;
        let target = UriRef::parse(location).map_err(|_| nowhere())?;
        let target = target.resolve_against(&base.strip_fragment()).map_err(|_| nowhere())?;
        match Endpoint::parse(target.as_str()) {
            Ok(target) if target.is_of(self) => Ok(target),
            Ok(target) => Err(target.origin().to_string()),
            Err(_) => Err(nowhere()),
        }
    }

    /// Scheme, host and port: what may be logged.
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin(&self.0)
    }
}

pub(super) struct Origin<'a>(&'a Uri);

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme_str().unwrap_or_default(), self.0.authority().map_or("", |at| at.as_str()))
    }
}

/// The address that a URL's host is, in the usual notation. Others, such as `0x7f.1`, are resolved as names are.
pub(super) fn literal(uri: &Uri) -> Option<IpAddr> {
    uri.host()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_reads_in_one_way_only() {
        for (url, host) in [
            ("https://Example.com/a?b=c", "Example.com"),
            ("http://127.0.0.1:8080", "127.0.0.1"),
            ("https://[::1]:8443/x", "::1"),
            ("https://a_b.internal/", "a_b.internal"),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().host(), host);
        }
        for (url, error) in [
            ("", EndpointError::Syntax),
            ("/hooks", EndpointError::Syntax),
            ("example.com", EndpointError::Syntax),
            ("https:///hooks", EndpointError::Syntax),
            ("https://a b/", EndpointError::Syntax),
            ("https://a/\r\nx: y", EndpointError::Syntax),
            ("https://a:99999/", EndpointError::Syntax),
            ("https://a:/", EndpointError::Syntax),
            ("ftp://a/", EndpointError::Scheme),
            ("https://user:secret@a/", EndpointError::Userinfo),
            ("https://good.example@evil.example/", EndpointError::Userinfo),
            ("https://a%2eb/", EndpointError::Syntax),
            ("https://a;b/", EndpointError::Host),
        ] {
            assert_eq!(Endpoint::parse(url), Err(error), "{url:?}");
        }
        assert!(Endpoint::parse("https://good.example\\@evil.example/").is_err());
        assert!(Endpoint::parse("https://bücher.example/").is_err());
    }

    #[test]
    fn a_redirect_stays_in_its_origin() {
        let at = Endpoint::parse("https://a.example/hooks/in?x=1").unwrap();
        for (location, url) in [
            ("/v2", "https://a.example/v2"),
            ("v2", "https://a.example/hooks/v2"),
            ("https://A.example:443/v2", "https://A.example:443/v2"),
            ("//a.example/v2", "https://a.example/v2"),
        ] {
            assert_eq!(at.follow(location).unwrap(), Endpoint::parse(url).unwrap(), "{location}");
        }
        for (location, host) in [
            ("http://a.example/hooks", "http://a.example"),
            ("https://a.example:8443/secret", "https://a.example:8443"),
            ("//evil.example/secret", "https://evil.example"),
            ("https://u:p@a.example/", "nowhere that is a URL"),
            ("https://a.example\r\n/", "nowhere that is a URL"),
            ("\\\\evil.example", "nowhere that is a URL"),
        ] {
            assert_eq!(at.follow(location).unwrap_err(), host, "{location}");
        }
    }
}
