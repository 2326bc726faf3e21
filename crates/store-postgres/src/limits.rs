//! Size limits of PostgreSQL, checked before anything is sent: a value of a column and a statement have less than 1 GB,
//! and a row of an index less than a third of a page, which is 2 704 bytes.

use backstop_event_log::{Batch, Moves};

use crate::fault::Fault;
use crate::text::encode_text;

/// The most bytes of a name that an index has, as it is stored. Two of them are in one row of an index at most.
pub(crate) const MAX_NAME_BYTES: usize = 1_024;
/// The most bytes of an append, an error or a result. A statement needs several times as much of memory, here and
/// in the server.
pub(crate) const MAX_BYTES: usize = 128 << 20;

/// Checks a name that an index has.
///
/// # Errors
///
/// [`Fault::TooLarge`].
pub(crate) fn name(what: &str, name: &str) -> Result<(), Fault> {
    let bytes = encode_text(name).len();
    match bytes > MAX_NAME_BYTES {
        true => Err(too_large(what, bytes, MAX_NAME_BYTES)),
        false => Ok(()),
    }
}

/// Checks how many bytes are written at once.
///
/// # Errors
///
/// [`Fault::TooLarge`].
pub(crate) fn size(what: &str, bytes: usize) -> Result<(), Fault> {
    match bytes > MAX_BYTES {
        true => Err(too_large(what, bytes, MAX_BYTES)),
        false => Ok(()),
    }
}

/// Checks an append.
///
/// # Errors
///
/// [`Fault::TooLarge`].
pub(crate) fn batch(batch: &Batch) -> Result<(), Fault> {
    let Batch { run, summary, moves, .. } = batch;
    name("run id", run.as_str())?;
    name("session", summary.session.as_str())?;
    name("agent's name", &summary.agent)?;
    for (key, value) in &*summary.labels {
        name("label", key)?;
        name("label", value)?;
    }
    for other in [&summary.parent, &summary.branch_of, &summary.follows].into_iter().flatten() {
        name("run id", other.as_str())?;
    }
    if let Some(Moves { name: subscription, .. }) = moves.as_deref() {
        name("subscription's name", subscription)?;
    }
    size("append", bytes(batch))
}

/// Returns how many bytes the events of an append have.
pub(crate) fn bytes(batch: &Batch) -> usize {
    batch.records.iter().map(|record| record.payload.text().map_or(0, str::len)).sum()
}

fn too_large(what: &str, bytes: usize, most: usize) -> Fault {
    Fault::TooLarge(format!("{what} of {bytes} bytes, where {most} are the most").into())
}
