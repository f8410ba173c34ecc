//! Which addresses are the public's.
//!
//! Whoever may write a destination into a row must not reach what only this host can: services beside it, the cloud's
//! metadata. So an address that is not known to be public is taken for a private one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one that anybody on the internet can reach, by the
/// [registries of special addresses](https://www.iana.org/assignments/iana-ipv4-special-registry).
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        // This network, and this host.
        (0 | 127, ..) => false,
        // Private.
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => false,
        // Shared by a provider's customers.
        (100, 64..=127, _) => false,
        // Link-local, where clouds have their metadata.
        (169, 254, _) => false,
        // Protocols, relays of 6to4, documentation, benchmarks.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) | (198, 18 | 19, _) => false,
        // Multicast, reserved, broadcast.
        (224.., ..) => false,
        _ => true,
    }
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    match address.segments() {
        // NAT64: what it is translated to.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(v4(high, low)),
        // Protocols, among them Teredo; documentation; 6to4.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2002, ..] => false,
        // What is assigned for global unicast, and nothing else: neither ::1 nor unique local, link-local or multicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_s_addresses_are_public() {
        for public in
            ["1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "169.253.1.1", "223.255.255.255"]
                .into_iter()
                .chain(["2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in ["0.0.0.0", "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"]
            .into_iter()
            .chain(["169.254.169.254", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"])
            .chain(["::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "fc00::1", "fd12::1"])
            .chain(["fe80::1", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::"])
            .chain(["2001::1", "2001:db8::1", "fec0::1", "100::1"])
        {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }
}
