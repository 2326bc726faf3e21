//! What another actor does between two steps of a removal, and after it.

use std::sync::Arc;

use backstop_error_store::ErrorStore;
use backstop_event_log::{Cursor, EventFilter, EventLog, LogError, RunWriter, read_events};
use layer0::event::{RunForked, RunReopened};
use layer0::id::RunId;
use layer0::{Code, code};

use super::names::{Names, append, begin_segment, error, started};
use super::store::RunQueue;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intruder {
    /// A run starts that follows the run.
    Begin,
    /// The run is claimed, and reopened once the removal is over.
    Claim,
    /// A follower reads the feed, before, between and after.
    Follow,
    /// The run is copied.
    Fork,
    Reopen,
    /// The host of the subscription starts its next segment.
    Roll,
    /// Another run stores the same text.
    Store,
    /// A worker takes a run of the session from the queue, and starts it once the removal is over.
    Take,
}

/// The handles of the other process.
#[derive(Clone)]
pub(super) struct OtherProcess {
    pub(super) log: Arc<dyn EventLog>,
    pub(super) errors: Arc<dyn ErrorStore>,
    pub(super) queue: Option<Arc<dyn RunQueue>>,
    /// Position of its follower before the removal.
    pub(super) cursor: Cursor,
}

/// What the actor holds when it has acted.
#[derive(Default)]
pub(super) struct Holdings {
    writer: Option<RunWriter>,
    taken: Option<RunId>,
    cursors: Vec<Cursor>,
}

impl OtherProcess {
    /// Acts between two steps.
    pub(super) async fn act(
        &self,
        names: &Names,
        intruder: Intruder,
    ) -> Result<Holdings, LogError> {
        let (run, copied) = (names.run.as_str(), names.copy.as_str());
        let (log, mut held) = (Arc::clone(&self.log), Holdings::default());
        match intruder {
            Intruder::Begin => {
                let mut next = RunWriter::new(log, names.next.as_str().into());
                append(&mut next, started(&names.session, None, Some(run))).await?;
            }
            Intruder::Claim => held.writer = Some(self.claim(names).await?),
            Intruder::Follow => {
                let (_, behind) = read_to_end(&*log, self.cursor).await?;
                held.cursors = vec![self.cursor, behind];
            }
            Intruder::Fork => {
                let (_, events) = read_events(&*log, &run.into()).await?;
                let mut records = log.records(&run.into(), 1).await?;
                records.truncate(1);
                let mut copy = RunWriter::copy(log, copied.into(), &events[..1], records);
                let session = format!("ses_{copied}");
                append(&mut copy, RunForked::new(copied, session.as_str(), run, 1).into()).await?;
            }
            Intruder::Reopen => {
                let mut writer = self.claim(names).await?;
                append(&mut writer, reopened().into()).await?;
            }
            Intruder::Roll => held.writer = Some(begin_segment(&log, names, 3).await?),
            Intruder::Store => {
                // A run of another session stores nothing that is removed.
                let stored = self.errors.store(error(names, "run_elsewhere")).await;
                stored.map_err(|error| LogError::Failed(error.into()))?;
            }
            Intruder::Take => {
                if let Some(queue) = &self.queue {
                    held.taken = queue.take().await;
                }
            }
        }
        Ok(held)
    }

    async fn claim(&self, names: &Names) -> Result<RunWriter, LogError> {
        let run = RunId::from(names.run.as_str());
        let claim = self.log.claim(&run).await?;
        let summary = self.log.summary(&run).await?;
        let summary = summary.ok_or_else(|| LogError::NotFound(run))?;
        Ok(RunWriter::resume(Arc::clone(&self.log), summary, claim))
    }

    /// Goes on once the removal is over. Returns the run that it has begun or reopened, if any.
    pub(super) async fn finish(
        &self,
        names: &Names,
        intruder: Intruder,
        held: Holdings,
    ) -> Result<Option<RunId>, LogError> {
        let Holdings { mut writer, taken, cursors } = held;
        match (intruder, taken, &mut writer) {
            (Intruder::Claim, _, Some(writer)) => {
                append(writer, reopened().into()).await?;
                Ok(Some(names.run.as_str().into()))
            }
            (Intruder::Roll, _, Some(writer)) => {
                let subscription = self.log.subscription(&names.subscription).await?;
                let newest = subscription.map(|it| it.segment);
                assert_eq!(newest, Some(3), "{names:?}: the subscription is in its newest segment");
                append(writer, layer0::event::Warning::new("goes on").into()).await?;
                Ok(None)
            }
            (Intruder::Follow, ..) => {
                let mut next =
                    RunWriter::new(Arc::clone(&self.log), names.elsewhere.as_str().into());
                append(&mut next, started(&names.elsewhere, None, None)).await?;
                for cursor in cursors {
                    let (seen, _) = read_to_end(&*self.log, cursor).await?;
                    let is_seen = seen.iter().any(|run| run.as_str() == names.elsewhere);
                    assert!(is_seen, "{names:?}: a run that began later is skipped");
                }
                Ok(None)
            }
            (Intruder::Take, Some(run), _) => {
                let session = names.session.as_str().into();
                let last = self.log.last_root(&session).await?.map(|last| last.run);
                let mut writer = RunWriter::new(Arc::clone(&self.log), run.clone());
                let follows = last.as_ref().map(RunId::as_str);
                append(&mut writer, started(&names.session, None, follows)).await?;
                Ok(Some(run))
            }
            _ => Ok(None),
        }
    }
}

fn reopened() -> RunReopened {
    RunReopened::new("ops", Some(Code::new(code::PROVIDER_TIMEOUT)))
}

/// Reads the feed to its end; returns the runs of the events, and the position behind them.
async fn read_to_end(
    log: &dyn EventLog,
    mut cursor: Cursor,
) -> Result<(Vec<RunId>, Cursor), LogError> {
    let mut seen = Vec::new();
    loop {
        let page = log.read_feed(&EventFilter::new(), &cursor).await?;
        seen.extend(page.records.into_iter().map(|record| record.run));
        cursor = page.cursor;
        if page.is_end {
            return Ok((seen, cursor));
        }
    }
}
