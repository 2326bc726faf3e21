//! Lookup of texts that a call may read.

use layer0::id::SessionId;

use crate::StoreError;

/// A store's answer to a lookup by id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Lookup<T> {
    /// It existed, and was removed when its retention ended.
    Expired,
    /// It exists.
    Found(T),
    /// It never existed, or belongs to another session.
    Missing,
}

impl<T> Lookup<T> {
    /// Returns the item that was found.
    #[must_use]
    pub fn into_item(self) -> Option<T> {
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

    /// Applies a function to the item that was found.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Self::Expired => Lookup::Expired,
            Self::Found(found) => Lookup::Found(f(found)),
            Self::Missing => Lookup::Missing,
        }
    }
}

/// Searches the call's own session first, then those of the runs it was copied from. A locked store is queried once
/// more.
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
