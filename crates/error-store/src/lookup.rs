//! Finding what a call may read.

use layer0::id::SessionId;

use crate::StoreError;

/// A store's answer to a lookup by id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Lookup<T> {
    /// It was there, and was taken away when its time was over.
    Expired,
    /// It is there.
    Found(T),
    /// It never was there, or is another session's.
    Missing,
}

impl<T> Lookup<T> {
    /// Returns what was found.
    #[must_use]
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Expired | Self::Missing => None,
        }
    }

    /// Returns whether the item was pruned.
    #[must_use]
    pub const fn is_expired(&self) -> bool {
        matches!(self, Self::Expired)
    }

    /// Applies a function to what was found.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::Expired => Lookup::Expired,
            Self::Found(found) => Lookup::Found(f(found)),
            Self::Missing => Lookup::Missing,
        }
    }
}

/// Looks in the call's own session first, then in those of the runs it was copied from. A store that
/// is locked is asked once more.
pub(crate) async fn look_up<'s, T, F>(
    sessions: &'s [SessionId],
    get: impl Fn(&'s SessionId) -> F,
) -> Result<Lookup<T>, StoreError>
where
    F: Future<Output = Result<Lookup<T>, StoreError>>,
{
    let mut answer = Lookup::Missing;
    for session in sessions {
        let found = match get(session).await {
            Err(StoreError::Locked(_)) => get(session).await,
            found => found,
        };
        match found? {
            found @ Lookup::Found(_) => return Ok(found),
            Lookup::Expired => answer = Lookup::Expired,
            Lookup::Missing => {}
        }
    }
    Ok(answer)
}
