//! Messages of the control channel: a length, JSON, and sometimes an open file.

use std::io;

use serde::Serialize;

/// Maximum size of a message, in bytes. The kernel's limit for arguments and variables of a program is lower.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Size of the length prefix, in bytes.
pub(crate) const HEAD: usize = 4;

/// Encodes a message with its length prefix.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - HEAD;
    let length = u32::try_from(length).ok().filter(|_| length <= MAX_BYTES);
    let length = length.ok_or_else(|| io::Error::other("message is too long"))?;
    if let Some(head) = bytes.first_chunk_mut::<HEAD>() {
        *head = length.to_le_bytes();
    }
    Ok(bytes)
}

/// Returns the size of a message's body, in bytes.
pub(crate) fn length(head: [u8; HEAD]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(head)).map_err(io::Error::other)?;
    if length > MAX_BYTES { Err(io::Error::other("message is too long")) } else { Ok(length) }
}
