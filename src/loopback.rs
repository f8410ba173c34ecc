//! Whether a host is this machine, without asking anybody: what is not sure to be counts as another.

use std::net::IpAddr;

/// Of a name or an address, with or without the brackets of version 6. Names are believed only where they are
/// `localhost`: another may lead here today, and elsewhere when the name service says so.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim();
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match address.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case("localhost"),
    }
}

/// The entries of Kafka's list of brokers that are not sure to be this machine.
pub(crate) fn remote_brokers(brokers: &str) -> impl Iterator<Item = &str> {
    brokers.split(',').map(str::trim).filter(|broker| !broker.is_empty() && !is_loopback(host_of(broker)))
}

/// `host` of `host:port`, which librdkafka also takes with a protocol before it. An address of version 6 without brackets has
/// no port.
pub(crate) fn host_of(broker: &str) -> &str {
    let broker = broker.split_once("://").map_or(broker, |(_, rest)| rest);
    match broker.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => host,
        Some(_) | None => broker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_sure_to_be_this_machine_is() {
        for host in
            ["localhost", "LocalHost", "localhost.", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "::ffff:127.0.0.1"]
        {
            assert!(is_loopback(host), "{host}");
        }
        // The last ones lead here by some way that only the resolver knows.
        for host in [
            "db",
            "10.0.0.1",
            "0.0.0.0",
            "::",
            "fe80::1",
            "::ffff:10.0.0.1",
            "128.0.0.1",
            "localhost.example",
            "",
            "127.1",
            "2130706433",
            "db.localhost",
            "localhost.localdomain",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn brokers_are_judged_by_their_hosts() {
        let remote = |brokers| remote_brokers(brokers).collect::<Vec<_>>();
        assert!(remote("localhost:9092, 127.0.0.1,[::1]:9092,PLAINTEXT://localhost:9092,,").is_empty());
        assert_eq!(remote("localhost:9092, kafka:9092,[fe80::1]:9092"), ["kafka:9092", "[fe80::1]:9092"]);
        assert_eq!(remote("::1:9092,[::1]:9092,::1"), ["::1:9092"]);
        assert_eq!(remote("kafka"), ["kafka"]);
        assert_eq!(remote("SSL://10.0.0.1:9093"), ["SSL://10.0.0.1:9093"]);
    }
}
