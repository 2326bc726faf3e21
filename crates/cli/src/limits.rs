//! Deadline and approvers of an approval, as text.

use layer0::{Approvers, Timestamp};

/// Returns the limits in one line; `None` if any person may decide at any time.
pub(crate) fn limits(
    expires_at: Option<Timestamp>,
    approvers: &Approvers,
    now: Timestamp,
) -> Option<String> {
    let until = expires_at.map(|over| match over <= now {
        true => format!("expired {over}"),
        false => format!("until {over}"),
    });
    let by = (!approvers.is_empty()).then(|| format!("by {approvers}"));
    let limits: Vec<String> = until.into_iter().chain(by).collect();
    (!limits.is_empty()).then(|| limits.join(", "))
}
