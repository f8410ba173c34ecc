//! Where a record goes: a topic, a URL, or an exchange and a routing key, from a template, an event's type or its
//! `destination`.
//!
//! Whatever a row has in it, a column in a URL stays one segment or value of it, and a URL that a row names leads to an
//! allowed host only.

use std::{borrow::Cow, collections::BTreeMap, str::FromStr, sync::Arc};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::{layout::is_topic, pattern::Pattern, poison::Reason};
use crate::pipeline::template::{Part, Template};

/// What the records of an outbox are addressed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A topic of Kafka.
    Topic,
    Url(Arc<Urls>),
    /// An exchange of RabbitMQ; the template or the destination is the routing key.
    Exchange(Option<Template>),
}

/// What goes before, and behind, the template of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urls {
    /// By the event's type, before the template.
    pub by_type: BTreeMap<String, Endpoint>,
    /// Where a destination may lead, which goes before both.
    pub hosts: Vec<HostRule>,
}

/// An absolute URL of http or https, without credentials and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// An address of version 6 in brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Endpoint, &'static str> {
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if !text.bytes().all(is_allowed) {
            return Err("it has characters that no URL has (write the host in Punycode, others as %XX)");
        }
        let url = Url::parse(text).map_err(|_| "it is no absolute URL")?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("its scheme is neither https nor http");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it holds a user or a password");
        }
        if url.fragment().is_some() {
            return Err("it has a fragment");
        }
        Ok(Endpoint(url))
    }
}

/// Hosts that destinations may lead to: `hooks.example.com`, `*.example.com`, `127.0.0.1:8080`. Without a port it is the
/// scheme's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    host: String,
    /// It stands for all below the host, and not for the host.
    below: bool,
    port: Option<u16>,
}

impl HostRule {
    fn allows(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let is_host = match self.below {
            true => host.strip_suffix(&self.host).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            false => host == self.host,
        };
        let has_port = match self.port {
            Some(port) => url.port_or_known_default() == Some(port),
            // The scheme's own.
            None => url.port().is_none(),
        };
        is_host && has_port
    }
}

impl FromStr for HostRule {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<HostRule, &'static str> {
        const FORM: &str = "write a host, as in hooks.example.com, *.example.com or 127.0.0.1:8080";
        let (below, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        // As a URL has it: in lower case, in Punycode, addresses in their one form.
        let url = Url::parse(&format!("https://{rest}/")).map_err(|_| FORM)?;
        let is_bare =
            url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        match url.host_str() {
            Some(host) if is_bare && !host.contains('*') => {
                // 443 is left out of such a URL.
                let port = url.port().or_else(|| rest.ends_with(":443").then_some(443));
                Ok(HostRule { host: host.to_owned(), below, port })
            }
            Some(_) | None => Err(FORM),
        }
    }
}

/// The same for the rows of one relation.
#[derive(Clone, Debug)]
pub(super) enum Addressing {
    Topic,
    Url(Arc<Urls>),
    Exchange(Option<Pattern>),
}

impl Address {
    pub(super) fn of_rows<E>(&self, index_of: impl Fn(&str) -> Result<usize, E>) -> Result<Addressing, E> {
        Ok(match self {
            Address::Topic => Addressing::Topic,
            Address::Url(urls) => Addressing::Url(Arc::clone(urls)),
            Address::Exchange(None) => Addressing::Exchange(None),
            Address::Exchange(Some(template)) => Addressing::Exchange(Some(Pattern::new(template, index_of)?)),
        })
    }

    /// Why the template cannot be that of such an address.
    pub fn judge(&self, template: &Template) -> Result<(), String> {
        let Address::Url(_) = self else { return Ok(()) };
        if matches!(template.parts(), [Part::Column(name)] if name == "destination") {
            return Ok(());
        }
        let filled = |column: &str| -> Result<Endpoint, String> {
            let text: String = template.parts().iter().map(|part| part.text().unwrap_or(column)).collect();
            text.parse().map_err(|why| format!("{why}; write one such as https://example.com/events"))
        };
        // A column that has a part in the host, or before it, gives two.
        if filled("x")?.0.origin() == filled("y")?.0.origin() {
            return Ok(());
        }
        Err("a column may stand behind the host and a / only, as in https://example.com/${event_type}".to_owned())
    }
}

impl Addressing {
    /// The address that a destination names.
    pub(super) fn of_destination(&self, destination: &str, address: &mut String) -> Result<(), Reason> {
        match self {
            Addressing::Topic | Addressing::Exchange(_) => address.push_str(destination),
            Addressing::Url(urls) => {
                let Endpoint(url) = destination.parse().map_err(Reason::IllegalUrl)?;
                if !urls.hosts.iter().any(|rule| rule.allows(&url)) {
                    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
                    return Err(Reason::ForbiddenHost(format!("{}{port}", url.host_str().unwrap_or_default())));
                }
                address.push_str(url.as_str());
            }
        }
        Ok(())
    }

    /// The address that the event's type has.
    pub(super) fn of_type(&self, event_type: Option<&[u8]>) -> Option<&str> {
        let Addressing::Url(urls) = self else { return None };
        let event_type = std::str::from_utf8(event_type?).ok()?;
        urls.by_type.get(event_type).map(Endpoint::as_str)
    }

    /// A column's text as a part of the address; none where it cannot be one.
    pub(super) fn part<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        /// RFC 3986's unreserved characters.
        const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
        match self {
            Addressing::Topic | Addressing::Exchange(_) => Some(text.into()),
            // As a segment it would lead elsewhere, also percent-encoded.
            Addressing::Url(_) if matches!(text, "." | "..") => None,
            Addressing::Url(_) => Some(utf8_percent_encode(text, RESERVED).into()),
        }
    }

    /// Why bytes that are no UTF-8 are no address.
    pub(super) fn no_text(&self, bytes: &[u8]) -> Reason {
        match self {
            Addressing::Topic | Addressing::Exchange(_) => {
                Reason::IllegalTopic(String::from_utf8_lossy(bytes).into_owned())
            }
            Addressing::Url(_) => Reason::IllegalUrl("it is no UTF-8"),
        }
    }

    /// Whether the sink can take a record there.
    pub(super) fn check(&self, address: &str) -> Result<(), Reason> {
        match self {
            Addressing::Topic if is_topic(address) => Ok(()),
            Addressing::Topic => Err(Reason::IllegalTopic(address.to_owned())),
            Addressing::Url(_) => Ok(()),
            Addressing::Exchange(_) => {
                /// A short string of AMQP.
                const BYTES_MAX: usize = 255;
                let (exchange, key) = address.split_once('/').unwrap_or_default();
                let fits = exchange.len() <= BYTES_MAX && (1..=BYTES_MAX).contains(&key.len());
                if fits { Ok(()) } else { Err(Reason::IllegalRoute(address.to_owned())) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(hosts: &[&str]) -> Addressing {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        Addressing::Url(Arc::new(Urls { by_type: BTreeMap::new(), hosts }))
    }

    #[test]
    fn a_destination_leads_to_an_allowed_host_only() {
        let urls =
            urls(&["hooks.example.com", "*.shop.example", "127.0.0.1:8080", "plain.example:80", "safe.example:443"]);
        for (allowed, as_sent) in [
            ("https://hooks.example.com/a?b=c", "https://hooks.example.com/a?b=c"),
            ("https://HOOKS.example.com:443", "https://hooks.example.com/"),
            ("http://hooks.example.com/", "http://hooks.example.com/"),
            ("https://eu.shop.example/", "https://eu.shop.example/"),
            ("http://127.1:8080/x", "http://127.0.0.1:8080/x"),
            ("http://plain.example:80/", "http://plain.example/"),
            ("https://safe.example/", "https://safe.example/"),
        ] {
            let mut address = String::new();
            urls.of_destination(allowed, &mut address).unwrap();
            assert_eq!(address, as_sent);
        }
        for refused in [
            "https://hooks.example.com.evil.example/",
            "https://evilshop.example/",
            "https://shop.example/",
            "https://hooks.example.com:8443/",
            "http://127.0.0.1/",
            "https://plain.example/",
            "http://safe.example/",
            "https://user@hooks.example.com/",
            "https://hooks.example.com@evil.example/",
            "ftp://hooks.example.com/",
            "//hooks.example.com/",
            "orders",
            "",
        ] {
            assert!(urls.of_destination(refused, &mut String::new()).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_column_stays_where_it_stands_in_a_url() {
        let urls = urls(&[]);
        for (text, encoded) in
            [("a b", "a%20b"), ("../x", "..%2Fx"), ("a?b#c&d=e", "a%3Fb%23c%26d%3De"), ("ü", "%C3%BC")]
        {
            assert_eq!(urls.part(text).unwrap(), encoded);
        }
        assert_eq!(urls.part(".."), None);
    }

    #[test]
    fn a_template_of_urls_fixes_the_host() {
        let judge = |template: &str| Address::Url(Arc::default()).judge(&template.parse().unwrap());
        for sound in
            ["${destination}", "https://a.example", "https://a.example/${event_type}", "http://a:8080/x/${a}?b=${c}"]
        {
            assert_eq!(judge(sound), Ok(()), "{sound}");
        }
        for unsound in [
            "${host}",
            "https://${host}/",
            "https://a.example${x}",
            "a.example/x",
            "https:///${a}",
            "https://${a}.example/",
            "https://a.example:8${a}/",
            "htt${a}://a.example/",
            "https://a@b/",
            "${destination}/x",
            "https://ü.example/",
            "https://a.example/a b",
        ] {
            assert!(judge(unsound).is_err(), "{unsound}");
        }
    }

    #[test]
    fn routes_have_an_exchange_and_a_key() {
        let exchange = Addressing::Exchange(None);
        assert!(exchange.check("/orders").is_ok());
        assert!(exchange.check("events/order.placed/eu").is_ok());
        assert!(exchange.check("events/").is_err());
        assert!(exchange.check(&format!("/{}", "k".repeat(256))).is_err());
    }

    #[test]
    fn rules_for_hosts_are_hosts() {
        for wrong in ["", "https://a.example", "a.example/x", "a b", "*", "*.", "a.*", "user@a.example", "a.example?x"]
        {
            assert!(wrong.parse::<HostRule>().is_err(), "{wrong}");
        }
    }
}
