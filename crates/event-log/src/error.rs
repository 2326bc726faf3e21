use std::borrow::Cow;
use std::path::PathBuf;

use layer0::Approvers;
use layer0::code;
use layer0::error::BoxError;
use layer0::event::DecodeError;
use layer0::failure::{Effect, Facts, Failure, InnerError};
use layer0::id::{ApprovalId, RunId, SessionId};
use thiserror::Error;

use crate::Cursor;

/// The error of reading or writing a log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// A decision came after the approval had expired.
    ///
    /// Retry: never. Effect: none.
    #[error("approval `{0}` has expired")]
    ApprovalExpired(ApprovalId),
    /// The run has another writer, which is alive.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("run `{0}` has a living writer")]
    Claimed(RunId),
    /// The log was already closed.
    ///
    /// Retry: never. Effect: none.
    #[error("log is closed")]
    Closed,
    /// Another writer appended to the run.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` has another writer: seq {seq} is taken")]
    #[non_exhaustive]
    Conflict {
        /// The run.
        run: RunId,
        /// The sequence number of the first event to write.
        seq: u64,
    },
    /// The payload of an event was erased on request.
    ///
    /// Retry: never. Effect: none.
    #[error("event {seq} was erased")]
    #[non_exhaustive]
    Erased {
        /// The event.
        seq: u64,
    },
    /// The back end failed in a way that no other variant describes.
    ///
    /// Retry: never. Effect: unknown.
    #[error("log failed")]
    Failed(#[source] BoxError),
    /// A cursor does not belong to this log: the log has fewer events, or another event at that position.
    ///
    /// Retry: never. Effect: none.
    #[error("cursor `{0}` is not of this log")]
    ForeignCursor(Cursor),
    /// The run cannot be reopened, because another run of the session follows it.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` is followed by run `{by}`")]
    #[non_exhaustive]
    Followed {
        /// The run.
        run: RunId,
        /// The run that follows it.
        by: RunId,
    },
    /// A session is being forgotten: no run can begin, be reopened or be copied in it.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("session `{0}` is being forgotten")]
    Forgetting(SessionId),
    /// The disk or the quota is full.
    ///
    /// Retry: never. Effect: none.
    #[error("no space left for the log")]
    Full(#[source] BoxError),
    /// A run is sealed with a key that the log was not opened with.
    ///
    /// Retry: never. Effect: none.
    #[error("the run is sealed with key `{key_id}`, which was not given")]
    #[non_exhaustive]
    KeyMissing {
        /// The name of the key in records.
        key_id: Box<str>,
    },
    /// The lease of this process on a run has ended: the process was stopped or cut off for too long, and another may
    /// resume the run.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("the lease of this process on run `{0}` has ended")]
    LeaseEnded(RunId),
    /// The back end is locked by another process.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("log is locked")]
    Locked(#[source] BoxError),
    /// The person may not decide the approval.
    ///
    /// Retry: never. Effect: none.
    #[error("`{by}` may not decide approval `{approval}`, only: {approvers}")]
    #[non_exhaustive]
    NotApprover {
        /// The approval.
        approval: ApprovalId,
        /// The person named by the decision.
        by: Box<str>,
        /// The people who may decide.
        approvers: Approvers,
    },
    /// An event cannot be erased.
    ///
    /// Retry: never. Effect: none.
    #[error("event {seq} cannot be erased: {why}")]
    #[non_exhaustive]
    NotErasable {
        /// The event.
        seq: u64,
        /// The reason.
        why: &'static str,
    },
    /// There is no such run.
    ///
    /// Retry: never. Effect: none.
    #[error("no run `{0}`")]
    NotFound(RunId),
    /// The run is gone, though another record shows that it existed.
    ///
    /// Retry: never. Effect: unknown.
    #[error("the record of `{0}` was there, and is gone")]
    Lost(RunId),
    /// An acknowledged event is missing from the record of a run, because the store was restored to an older state.
    ///
    /// Retry: never. Effect: unknown.
    #[error("the record of `{run}` has lost event {seq}, which was acknowledged")]
    #[non_exhaustive]
    LostTail {
        /// The run.
        run: RunId,
        /// The newest event that is known to be lost.
        seq: u64,
    },
    /// A run was to be started under an id that a run has.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{0}` exists already")]
    RunExists(RunId),
    /// The run was forgotten on request and cannot begin again.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{0}` was forgotten")]
    RunForgotten(RunId),
    /// The log was written by a newer version.
    ///
    /// Retry: never. Effect: none.
    #[error("written with schema {found}, this version reads up to {known}")]
    #[non_exhaustive]
    SchemaNewer {
        /// The schema version of the log.
        found: u32,
        /// The newest schema version that this version reads.
        known: u32,
    },
    /// Another run of the session is open or began in the meantime; a session has one run at a time.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("session `{session}` has another run: `{run}`")]
    #[non_exhaustive]
    SessionBusy {
        /// The session.
        session: SessionId,
        /// The other run.
        run: RunId,
    },
    /// The hash chain is broken.
    ///
    /// Retry: never. Effect: none.
    #[error("hash chain broken at seq {seq}: {what}")]
    #[non_exhaustive]
    Tampered {
        /// The first event that cannot be trusted.
        seq: u64,
        /// The defect of the event.
        what: &'static str,
    },
    /// The file of the log was removed, renamed or replaced while it was open. Events written since then are not in the
    /// file with that name.
    ///
    /// Retry: never. Effect: unknown.
    #[error("`{}` is not the file any more that was opened", .0.display())]
    StoreLost(PathBuf),
    /// A name or an append is too long for the back end. Nothing was written.
    ///
    /// Retry: never. Effect: none.
    #[error("too large for the log")]
    TooLarge(#[source] BoxError),
    /// An event cannot be decoded, though nothing shows that it was changed; or it could not be decoded once written,
    /// and was not written.
    ///
    /// Retry: never. Effect: none.
    #[error("event {seq} cannot be read")]
    #[non_exhaustive]
    Unreadable {
        /// The event.
        seq: u64,
        /// The reason.
        #[source]
        source: InnerError<DecodeError>,
    },
    /// The back end cannot be reached, or disconnected before it answered.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("log cannot be reached")]
    Unreachable(#[source] BoxError),
    /// The summary of a run cannot be read, and its record cannot replace it.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` cannot be read")]
    #[non_exhaustive]
    UnreadableRun {
        /// The run.
        run: RunId,
        /// The reason.
        #[source]
        source: BoxError,
    },
    /// The writer of a run is closed: the run had ended when the writer was made, or one of its appends failed.
    ///
    /// Retry: never. Effect: none.
    #[error("the writer of run `{0}` is closed")]
    WriterClosed(RunId),
}

impl LogError {
    /// The advice for a store whose file is gone.
    pub const STORE_LOST_HINT: &str = "put it back together with its -wal and -shm, and resume what was open; stop \
        what writes before a file is moved";

    /// Makes [`LogError::Conflict`].
    #[must_use]
    pub const fn conflict(run: RunId, seq: u64) -> Self {
        Self::Conflict { run, seq }
    }

    /// Makes [`LogError::Erased`].
    #[must_use]
    pub const fn erased_event(seq: u64) -> Self {
        Self::Erased { seq }
    }

    /// Makes [`LogError::Followed`].
    #[must_use]
    pub const fn followed_run(run: RunId, by: RunId) -> Self {
        Self::Followed { run, by }
    }

    /// Makes [`LogError::KeyMissing`].
    #[must_use]
    pub fn key_missing(key_id: &str) -> Self {
        Self::KeyMissing { key_id: key_id.into() }
    }

    /// Makes [`LogError::LostTail`].
    #[must_use]
    pub const fn lost_tail(run: RunId, seq: u64) -> Self {
        Self::LostTail { run, seq }
    }

    /// Makes [`LogError::NotApprover`].
    #[must_use]
    pub fn not_approver(approval: ApprovalId, by: &str, approvers: Approvers) -> Self {
        Self::NotApprover { approval, by: by.into(), approvers }
    }

    /// Makes [`LogError::NotErasable`].
    #[must_use]
    pub const fn not_erasable(seq: u64, why: &'static str) -> Self {
        Self::NotErasable { seq, why }
    }

    /// Makes [`LogError::SchemaNewer`].
    #[must_use]
    pub const fn schema_newer(found: u32, known: u32) -> Self {
        Self::SchemaNewer { found, known }
    }

    /// Makes [`LogError::SessionBusy`].
    #[must_use]
    pub const fn session_busy(session: SessionId, run: RunId) -> Self {
        Self::SessionBusy { session, run }
    }

    /// Makes [`LogError::Tampered`].
    #[must_use]
    pub const fn tampered_event(seq: u64, what: &'static str) -> Self {
        Self::Tampered { seq, what }
    }

    /// Makes [`LogError::Unreadable`].
    #[must_use]
    pub fn unreadable(seq: u64, source: DecodeError) -> Self {
        Self::Unreadable { seq, source: source.into() }
    }

    /// Makes [`LogError::UnreadableRun`].
    #[must_use]
    pub fn unreadable_run(run: RunId, source: impl Into<BoxError>) -> Self {
        Self::UnreadableRun { run, source: source.into() }
    }

    /// Converts the error of a run's first append: if another event has its place, the run exists.
    #[must_use]
    pub fn at_start(self) -> Self {
        match self {
            Self::Conflict { run, .. } => Self::RunExists(run),
            other => other,
        }
    }

    /// Returns whether another attempt now, with backoff, can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }
}

impl Failure for LogError {
    fn facts(&self) -> Facts {
        match self {
            Self::ApprovalExpired(_) => Facts::never(code::APPROVAL_EXPIRED, Effect::None),
            Self::Claimed(_) | Self::Forgetting(_) | Self::SessionBusy { .. } => {
                Facts::backoff(code::RUN_OPEN, Effect::None)
            }
            Self::Closed => Facts::never(code::STORE_CLOSED, Effect::None),
            Self::Conflict { .. } | Self::WriterClosed(_) => {
                Facts::never(code::LOG_APPEND_FAILED, Effect::None)
            }
            Self::Erased { .. } => Facts::never(code::LOG_ERASED, Effect::None),
            Self::Failed(_) => Facts::never(code::STORE_FAILED, Effect::Unknown),
            Self::TooLarge(_) => Facts::never(code::STORE_FAILED, Effect::None),
            Self::Followed { .. } => Facts::never(code::RUN_FOLLOWED, Effect::None),
            Self::Full(_) => Facts::never(code::STORE_FULL, Effect::None),
            Self::LeaseEnded(_) => Facts::backoff(code::LOG_APPEND_FAILED, Effect::None),
            Self::Locked(_) => Facts::backoff(code::STORE_LOCKED, Effect::None),
            Self::ForeignCursor(_) | Self::NotErasable { .. } => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
            Self::NotApprover { .. } => Facts::never(code::APPROVAL_NOT_APPROVER, Effect::None),
            Self::NotFound(_) | Self::RunForgotten(_) => {
                Facts::never(code::RUN_NOT_FOUND, Effect::None)
            }
            Self::RunExists(_) => Facts::never(code::RUN_EXISTS, Effect::None),
            Self::Lost(_) | Self::LostTail { .. } => {
                Facts::never(code::LOG_LOST_TAIL, Effect::Unknown)
            }
            Self::StoreLost(_) => Facts::never(code::STORE_LOST, Effect::Unknown),
            Self::SchemaNewer { .. } => Facts::never(code::LOG_SCHEMA_NEWER, Effect::None),
            Self::Unreachable(_) => Facts::backoff(code::STORE_FAILED, Effect::Unknown),
            Self::Tampered { .. } => Facts::never(code::LOG_TAMPERED, Effect::None),
            Self::KeyMissing { .. } | Self::Unreadable { .. } | Self::UnreadableRun { .. } => {
                Facts::never(code::LOG_UNREADABLE, Effect::None)
            }
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::ForeignCursor(_) => Some(
                "the store is another one, or was restored from an older backup: follow it from \
                 `start`, or from `now`"
                    .into(),
            ),
            Self::Forgetting(_) => Some(
                "try again in a moment; where forgetting it was interrupted, forget it again".into(),
            ),
            Self::NotFound(_) => Some(
                "list the runs of the store; an agent without a log knows none, until it is given one"
                    .into(),
            ),
            Self::StoreLost(_) => Some(Self::STORE_LOST_HINT.into()),
            Self::Lost(_) => Some(
                "it was deleted, or the store was restored from an older backup: begin the work anew \
                 only once it is known what it had done"
                    .into(),
            ),
            Self::LostTail { run, .. } => Some(
                format!(
                    "restore the store from a newer backup; or find out what the run did after its last recorded \
                     event, and continue with `backstop resume {run} --accept-lost-tail`"
                )
                .into(),
            ),
            Self::TooLarge(_) => Some("give it a shorter name, or keep less in one event".into()),
            _ => None,
        }
    }
}
