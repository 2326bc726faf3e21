//! Messages of the control channel: a length, JSON, and sometimes an open file.

use std::io;

use serde::Serialize;

/// The longest message; arguments and variables of a program are shorter by the kernel's own limit.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The bytes of a message's length.
pub(crate) const HEAD: usize = 4;

/// Writes a message out.
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

/// Returns how long the rest of a message is.
pub(crate) fn length(head: [u8; HEAD]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(head)).map_err(io::Error::other)?;
    if length > MAX_BYTES { Err(io::Error::other("message is too long")) } else { Ok(length) }
}
