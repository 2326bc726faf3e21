//! Until when an approval can be decided, and by whom, for people.

use layer0::{Approvers, Timestamp};

/// Says it in a line; nothing where any person may decide at any time.
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
