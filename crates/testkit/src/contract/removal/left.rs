//! What is left after a removal.

use backstop_error_store::{ErrorFilter, Lookup};
use backstop_event_log::{LogError, RunFilter, RunState};
use backstop_retention::RemoveError;
use layer0::id::{ErrorId, RunId};

use super::intruder::Intruder;
use super::names::Names;
use super::store::RemovalStore;

/// The result of a removal: the removed runs, and the forks that it named if a session was forgotten.
pub(super) type Answer = Result<(Vec<RunId>, Option<Vec<RunId>>), RemoveError>;

/// The rows that remain after a removal.
#[derive(Debug)]
pub(super) struct Left {
    runs: Vec<(RunId, RunState)>,
    has_text: bool,
}

impl Left {
    pub(super) async fn read<S>(store: &RemovalStore<S>, names: &Names, text: &ErrorId) -> Self {
        let runs = store.log.runs(RunFilter::new()).await.expect("runs are listed");
        let found = store.errors.find(text).await.expect("an error is looked up");
        let any = store
            .errors
            .list(ErrorFilter::new().session(names.session.as_str()))
            .await
            .expect("errors are listed");
        let runs = runs.iter().map(|run| (run.run.clone(), run.state)).collect();
        // A text that is stored after the removal has an id of its own.
        Self { runs, has_text: matches!(found, Lookup::Found(_)) || !any.is_empty() }
    }

    fn has(&self, run: &str) -> bool {
        self.runs.iter().any(|(left, _)| left.as_str() == run)
    }

    /// Checks that a successful removal is complete, and that a refused one has removed nothing.
    pub(super) fn check_removal(&self, names: &Names, answer: &Answer, case: &str) {
        match answer {
            Ok((removed, forks)) => {
                for run in removed {
                    assert!(!self.has(run.as_str()), "{case}: {run} is left: {self:?}");
                }
                assert_eq!(
                    self.has(&names.run),
                    self.has(&names.below),
                    "{case}: half a tree is left: {self:?}"
                );
                if forks.is_some() {
                    assert!(!self.has(&names.run), "{case}: it is said to be forgotten: {self:?}");
                }
            }
            Err(_) => {
                assert!(
                    self.has(&names.run) && self.has(&names.below),
                    "{case}: {answer:?}, {self:?}"
                );
                assert!(self.has_text, "{case}: {answer:?}, but the text is gone");
            }
        }
    }

    /// Checks that the actor has everything that it depends on. `acted` has the run that it began or reopened after the
    /// removal, if any.
    pub(super) fn check_actor(
        &self,
        names: &Names,
        intruder: Intruder,
        acted: &Result<Option<RunId>, LogError>,
        answer: &Answer,
        case: &str,
    ) {
        let is_forgotten = matches!(answer, Ok((_, Some(_))));
        match (intruder, acted) {
            (Intruder::Follow | Intruder::Roll, acted) => {
                assert!(acted.is_ok(), "{case}: {acted:?}");
            }
            (Intruder::Take, Ok(Some(run))) => {
                assert!(
                    !is_forgotten,
                    "{case}: {run} begins, with the text of a forgotten session"
                );
            }
            // The worker is told that the run is gone, as the person was.
            (Intruder::Take, Err(error)) => {
                assert!(is_forgotten, "{case}: {answer:?}, but the taken run is refused: {error}");
            }
            (_, Err(_)) => {}
            (Intruder::Begin | Intruder::Reopen, Ok(_)) if is_forgotten => {
                // A run that began after the removal is complete.
                assert!(!self.has(&names.next), "{case}: a run follows one that is gone: {self:?}");
            }
            (Intruder::Begin | Intruder::Claim | Intruder::Reopen, Ok(_)) => {
                assert!(self.has(&names.run) && self.has_text, "{case}: {answer:?}, {self:?}");
            }
            (Intruder::Fork, Ok(_)) => {
                if let Ok((_, Some(forks))) = answer {
                    let is_named = forks.iter().any(|fork| fork.as_str() == names.copy);
                    assert!(is_named, "{case}: the copy is not named: {answer:?}");
                }
            }
            (Intruder::Store, Ok(_)) => {
                assert!(self.has_text || is_forgotten, "{case}: another run refers to the text");
            }
            (Intruder::Take, Ok(None)) => {}
        }
    }
}
