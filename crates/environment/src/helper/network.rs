//! The loopback of a new network.

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
