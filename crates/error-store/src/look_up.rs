//! Finding what a call may read.

use layer0::id::SessionId;

use crate::StoreError;

/// Looks in the call's own session first, then in those of the runs it was copied from. A store that
/// is locked is asked once more.
pub(crate) async fn look_up<'s, T, F>(
    sessions: &'s [SessionId],
    get: impl Fn(&'s SessionId) -> F,
) -> Result<Option<T>, StoreError>
where
    F: Future<Output = Result<Option<T>, StoreError>>,
{
    for session in sessions {
        let found = match get(session).await {
            Err(StoreError::Locked(_)) => get(session).await,
            found => found,
        };
        if let Some(record) = found? {
            return Ok(Some(record));
        }
    }
    Ok(None)
}
