//! The network of a program: its loopback, and what had no way out.

use std::fs;
use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// `RTM_NEWLINK`, `NLM_F_REQUEST | NLM_F_ACK`, `NLMSG_ERROR`, `IFF_UP`: rtnetlink(7), netlink(7), netdevice(7).
const NEW_LINK: u16 = 16;
const REQUEST_AND_ACK: u16 = 1 | 4;
const ERROR: u16 = 2;
const UP: u32 = 1;

/// The loopback is the first interface of each network.
const LOOPBACK: i32 = 1;

/// Brings the loopback up.
pub(super) fn raise_loopback() -> io::Result<()> {
    // The first protocol is the one for routes and links.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (read, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    check(answer.get(..read).unwrap_or_default())
}

/// Returns how often something in this network was sent, or connected, to where no route leads.
pub(super) fn count_unrouted() -> u64 {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let older = unrouted_of_version_4(&read("/proc/self/net/snmp"));
    let newer = unrouted_of_version_6(&read("/proc/self/net/snmp6"));
    older.unwrap_or(0).saturating_add(newer.unwrap_or(0))
}

/// Reads the counter from pairs of lines, of names and of values.
fn unrouted_of_version_4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut named = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    named.find(|(name, _)| *name == "OutNoRoutes")?.1.parse().ok()
}

/// Reads the counter from lines of a name and a value.
fn unrouted_of_version_6(text: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix("Ip6OutNoRoutes"));
    values.next()?.trim().parse().ok()
}

/// Returns the header of a message, followed by that of a link.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(32_u32.to_ne_bytes());
    bytes.extend(NEW_LINK.to_ne_bytes());
    bytes.extend(REQUEST_AND_ACK.to_ne_bytes());
    // Sequence number of the message, and the sender, which the kernel fills in.
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    // Family, padding, kind of device: unchanged.
    bytes.extend([0; 4]);
    bytes.extend(LOOPBACK.to_ne_bytes());
    bytes.extend(UP.to_ne_bytes());
    // Mask of the flags to change.
    bytes.extend(UP.to_ne_bytes());
    bytes
}

/// Checks the answer of the kernel; an acknowledgement is an error with the number 0.
fn check(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.first_chunk()).copied();
    let number = answer.get(16..20).and_then(|bytes| bytes.first_chunk()).copied();
    match (kind.map(u16::from_ne_bytes), number.map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(number)) => Err(io::Error::from_raw_os_error(-number)),
        _ => Err(io::Error::other("the kernel answered something else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: N3
    #[test]
    fn counters_of_both_versions_are_read() {
        let older = "Ip: Forwarding OutNoRoutes Reasm\nIp: 1 5 0\nTcp: OutNoRoutes\nTcp: 9\n";
        assert_eq!(unrouted_of_version_4(older), Some(5));
        assert_eq!(unrouted_of_version_4("Ip: Forwarding\nIp: 1\n"), None);
        let newer = "Ip6InNoRoutes         \t7\nIp6OutNoRoutes        \t2\n";
        assert_eq!(unrouted_of_version_6(newer), Some(2));
        assert_eq!(unrouted_of_version_6(""), None);
    }
}
