//! What the model reads of a call that has no result, in words that several parts share.

/// The run ended before the call was done.
pub const CANCELLED: &str = "Cancelled: the run was stopped";

/// The process died while the tool ran, and the tool is not safe to repeat.
pub const INTERRUPTED: &str = "Interrupted: may already have acted";

/// The process died while the tool ran, and it is known that the call did not happen.
pub const DID_NOT_HAPPEN: &str = "Interrupted: did not happen; may be called again";

/// Stands behind the failure of a call that is known not to have happened.
pub const MAY_BE_CALLED_AGAIN: &str = "It did not happen; may be called again.";

/// The output of a call that is known to have happened, where what it answered is not known.
pub const HAPPENED: &str = "It happened; what it answered is not known.";

/// How many characters of a person's words are read.
const MAX_CHARS: usize = 500;

/// Why a call is denied that was not decided in time.
pub const EXPIRED: &str = "the approval expired without a decision";

/// Says that a person denied the call, and why where they said so. Without a name, it was denied
/// because there was no decision.
#[must_use]
pub fn denied(by: &str, reason: &str) -> String {
    let cut = |text: &str| text.chars().take(MAX_CHARS).collect::<String>();
    match (by, reason) {
        ("", reason) => format!("Denied: {}", cut(reason)),
        (by, "") => format!("Denied by {}", cut(by)),
        (by, reason) => format!("Denied by {}: {}", cut(by), cut(reason)),
    }
}
