//! Dry runs of removals.

use std::time::Duration;

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{RunState, Subscription};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

use crate::{
    Fork, OldRun, Removal, RemoveError, Removed, RunRow, RunShelf, delete_run, forget_session,
    prune_runs,
};

/// Returns the runs that [`prune_runs`] would remove now. Changes nothing.
///
/// The result includes runs whose texts are sealed with a key that this process lacks, though [`prune_runs`] keeps
/// them.
///
/// # Errors
///
/// As [`prune_runs`].
pub async fn plan_prune(
    shelf: &impl RunShelf,
    age: Duration,
    states: &[RunState],
    now: Timestamp,
) -> Result<Vec<RunId>, StoreError> {
    Ok(prune_runs(&DryShelf(shelf), age, states, now).await?.runs)
}

/// Returns the runs that [`delete_run`] would remove now: the run and its child runs. Changes nothing.
///
/// # Errors
///
/// As [`delete_run`].
pub async fn plan_delete(shelf: &impl RunShelf, run: &RunId) -> Result<Vec<RunId>, RemoveError> {
    Ok(delete_run(&DryShelf(shelf), run).await?.runs)
}

/// Returns the runs that [`forget_session`] would remove now, and the copies that would remain. Changes nothing.
///
/// # Errors
///
/// As [`forget_session`]; also [`RemoveError::NoSession`] if a session without runs has errors, results or state.
pub async fn plan_forget(
    shelf: &impl RunShelf,
    session: &SessionId,
    with_forks: bool,
    now: Timestamp,
) -> Result<(Vec<RunId>, Vec<Fork>), RemoveError> {
    let forgotten = forget_session(&DryShelf(shelf), session, "", with_forks, now).await?;
    Ok((forgotten.removed.runs, forgotten.forks))
}

/// A shelf that is only read, and records which runs would be removed.
struct DryShelf<'s, S>(&'s S);

#[async_trait]
impl<S: RunShelf> RunShelf for DryShelf<'_, S> {
    async fn sweep(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError> {
        self.0.old_runs(until, states, after).await
    }

    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError> {
        self.0.connected_runs(runs).await
    }

    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        self.0.session_runs(sessions).await
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        self.0.segments().await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        self.0.subscriptions().await
    }

    async fn mark_forgetting(&self, _: &SessionId) -> Result<i64, StoreError> {
        Ok(0)
    }

    async fn unmark_forgetting(&self, _: &[i64]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn taken_run(&self, sessions: &[SessionId]) -> Result<Option<RunId>, StoreError> {
        self.0.taken_run(sessions).await
    }

    async fn remove(
        &self,
        tree: &[&RunRow],
        _: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError> {
        removed.runs.extend(tree.iter().map(|row| row.run.clone()));
        Ok(true)
    }

    async fn queued_runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        self.0.queued_runs(session).await
    }

    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        self.0.session_family(session).await
    }

    async fn take_session(
        &self,
        session: &SessionId,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        if removal.forgotten.is_some() {
            let queued = self.0.queued_runs(session).await?;
            // The row of a started run stays in the queue until the run ends, and a dry run leaves it there.
            let new: Vec<RunId> =
                queued.into_iter().filter(|run| !removed.runs.contains(run)).collect();
            removed.runs.extend(new);
        }
        Ok(())
    }
}
