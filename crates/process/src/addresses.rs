//! Public addresses, by the registries of special-purpose addresses (IANA, RFC 6890).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 ranges that are not public: address, length of the prefix.
const NOT_PUBLIC: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),       // this network
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // shared by a carrier's customers
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link-local, cloud metadata
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 88, 99, 0], 24),  // relays of 6to4
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarks
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 4),     // multicast
    ([240, 0, 0, 0], 4),     // reserved, broadcast
];

/// Ranges of IPv6's global unicast that are not public.
const NOT_PUBLIC_V6: [(u128, u32); 4] = [
    (0x2001_0000 << 96, 23), // protocol assignments, Teredo
    (0x2001_0db8 << 96, 32), // documentation
    (0x2002_0000 << 96, 16), // 6to4
    (0x3fff_0000 << 96, 20), // documentation
];

/// IPv6 addresses that can be public at all: global unicast.
const GLOBAL_UNICAST: (u128, u32) = (0x2000_0000 << 96, 3);
/// Addresses that embed IPv4 ones (NAT64).
const NAT64: (u128, u32) = (0x0064_ff9b << 96, 96);

/// Returns whether an address is not public: private, loopback, link-local, documentation, multicast and others.
///
/// An IPv6 address that embeds an IPv4 one (mapped, NAT64) is as private as that one. The ranges
/// are those of IANA's registries of special-purpose addresses.
///
/// ```
/// use backstop_process::is_private;
///
/// assert!(is_private([169, 254, 169, 254].into()));
/// assert!(!is_private([1, 1, 1, 1].into()));
/// ```
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    !is_public(address)
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_in = |(range, length): &([u8; 4], u32)| {
        (address.to_bits() ^ u32::from_be_bytes(*range)) >> (32 - length) == 0
    };
    !NOT_PUBLIC.iter().any(is_in)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    let is_in = |(range, length): &(u128, u32)| (bits ^ range) >> (128 - length) == 0;
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    if is_in(&NAT64) {
        let [.., a, b, c, d] = address.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    is_in(&GLOBAL_UNICAST) && !NOT_PUBLIC_V6.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: N4
    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "128.0.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.0.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:200::1",
            "2606:4700:4700::1111",
            "2a00::1",
            "3ffe::1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }
}
