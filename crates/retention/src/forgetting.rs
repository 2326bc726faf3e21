//! Removal of a whole session.

use backstop_event_log::account_scope;
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};
use layer0::state::Scope;

use crate::removal::ATTEMPTS;
use crate::{Forgotten, Fork, Removal, RemoveError, Removed, RunRow, RunShelf, trees};

/// Removes everything of a session: its runs with their errors and results, and its state.
///
/// Runs copied from the session contain copied data: with `with_forks` they are removed too, otherwise they are listed
/// in the result. A tombstone of each run remains.
///
/// The session is marked first. Meanwhile a run that starts in it, is reopened or is copied from it is refused with
/// [`LogError::Forgetting`](backstop_event_log::LogError::Forgetting).
///
/// # Errors
///
/// [`RemoveError::NoSession`], [`RemoveError::Open`], [`RemoveError::Store`].
pub async fn forget_session(
    shelf: &impl RunShelf,
    session: &SessionId,
    by: &str,
    with_forks: bool,
    now: Timestamp,
) -> Result<Forgotten, RemoveError> {
    shelf.sweep().await?;
    let mut marks = Vec::new();
    let request = ForgetRequest { session, by, with_forks, now };
    let forgotten = request.forget(shelf, &mut marks).await;
    // If this fails too, the next sweep removes the old marks.
    let unmarked = shelf.unmark_forgetting(&marks).await;
    let forgotten = forgotten?;
    unmarked?;
    Ok(forgotten)
}

/// Returns the scopes of state that belong to a session: its own, and that of its spend account.
pub fn session_scopes(session: &SessionId) -> impl Iterator<Item = Scope> {
    let own = Scope::Session(session.clone());
    std::iter::once(own).chain(account_scope("session", session.as_str()))
}

/// A request to forget a session.
struct ForgetRequest<'a> {
    session: &'a SessionId,
    by: &'a str,
    with_forks: bool,
    now: Timestamp,
}

impl ForgetRequest<'_> {
    async fn forget(
        &self,
        shelf: &impl RunShelf,
        marks: &mut Vec<i64>,
    ) -> Result<Forgotten, RemoveError> {
        let family = self.mark(shelf, marks).await?;
        let session = std::slice::from_ref(self.session);
        let sessions = if self.with_forks { &family } else { session };
        if let Some(taken) = shelf.taken_run(sessions).await? {
            return Err(RemoveError::Open(taken));
        }
        let mut removed = Removed::default();
        let (forks, is_known) = self.remove_runs(shelf, &family, sessions, &mut removed).await?;
        for session in sessions {
            shelf.take_session(session, &self.removal(forks.is_empty()), &mut removed).await?;
        }
        let is_known = is_known || !removed.runs.is_empty();
        if !is_known && removed.errors + removed.results + removed.state == 0 {
            return Err(RemoveError::NoSession(self.session.clone()));
        }
        Ok(Forgotten::new(removed, forks))
    }

    /// Marks the session, and its copies if they are removed too. Returns the session and all its copies: once a
    /// session is marked, no further copy is made from it.
    async fn mark(
        &self,
        shelf: &impl RunShelf,
        marks: &mut Vec<i64>,
    ) -> Result<Vec<SessionId>, RemoveError> {
        marks.push(shelf.mark_forgetting(self.session).await?);
        let mut marked = vec![self.session.clone()];
        loop {
            let family = shelf.session_family(self.session).await?;
            let new: Vec<&SessionId> =
                family.iter().filter(|copy| !marked.contains(copy)).collect();
            if new.is_empty() || !self.with_forks {
                return Ok(family);
            }
            for copy in new {
                marks.push(shelf.mark_forgetting(copy).await?);
                marked.push(copy.clone());
            }
        }
    }

    /// Removes the runs of the sessions. Returns the copies that remain, and whether there was a run. An open run
    /// refuses the whole request before anything is removed.
    async fn remove_runs(
        &self,
        shelf: &impl RunShelf,
        family: &[SessionId],
        sessions: &[SessionId],
        removed: &mut Removed,
    ) -> Result<(Vec<Fork>, bool), RemoveError> {
        let (mut is_known, mut changed) = (false, None);
        for _ in 0..ATTEMPTS {
            let rows = shelf.session_runs(family).await?;
            let is_fork = |row: &&RunRow| !self.with_forks && row.session != *self.session;
            let fork = |row: &RunRow| Fork::new(row.run.clone(), row.session.clone());
            let forks: Vec<Fork> = rows.iter().filter(is_fork).map(fork).collect();
            let going: Vec<&RunRow> =
                rows.iter().filter(|row| sessions.contains(&row.session)).collect();
            if let Some(open) = going.iter().find(|row| row.is_open()) {
                return Err(RemoveError::Open(open.run.clone()));
            }
            is_known |= !going.is_empty();
            changed = self.remove_trees(shelf, going, forks.is_empty(), removed).await?;
            if changed.is_none() {
                return Ok((forks, is_known));
            }
        }
        Err(changed.map_or_else(|| RemoveError::NoSession(self.session.clone()), RemoveError::Open))
    }

    /// Removes runs. Returns a run that was written to since its row was read, if any.
    async fn remove_trees(
        &self,
        shelf: &impl RunShelf,
        going: Vec<&RunRow>,
        is_silent: bool,
        removed: &mut Removed,
    ) -> Result<Option<RunId>, RemoveError> {
        let removal = self.removal(is_silent);
        for tree in trees(going) {
            if !shelf.remove(&tree, &removal, removed).await? {
                return Ok(tree.first().map(|row| row.run.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the kind of removal. The ids of texts are forgotten only if no copy remains, since a copy must find that
    /// the texts it refers to have expired.
    fn removal(&self, is_silent: bool) -> Removal {
        let forgotten = Some((self.by.to_owned(), self.now));
        Removal { forgotten, is_silent, ..Removal::default() }
    }
}
