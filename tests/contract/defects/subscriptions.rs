//! Event logs that break one promise about subscriptions each.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::MemoryLog;
use backstop_event_log::{
    Batch, Claim, EventLog, Log, LogError, Ports, Record, RunFilter, RunSummary, Runs,
    Subscription, Subscriptions,
};
use backstop_testkit::contract::Suite;
use layer0::id::{RunId, SessionId};

super::defects! {
    AcceptsAnySegment => refuses_a_segment_that_is_not_next,
    BeginsAnewWithEachSegment => continues_in_the_next_segment,
    FencesEventsOnly => refuses_moves_of_an_overtaken_writer,
    IgnoresMoves => moves_with_an_append,
    IgnoresMovesWithoutEvents => moves_without_an_event,
    KeepsEndedPositions => moves_with_an_append,
    ListsByPattern => lists_subscriptions_by_name,
    ListsSegments => lists_segments_only_when_asked,
    LosesThePattern => begins_with_the_first_segment,
    OneOpenSegment => segments_need_no_session,
    SharesPositions => keeps_subscriptions_apart,
}

use Defect as D;

/// Spec: X2, X4
#[test]
fn every_defect_of_subscriptions_is_noticed() {
    super::check(DEFECTS, suite);
}

fn suite(defect: Defect) -> Suite {
    backstop_testkit::contract::subscriptions(async move || {
        Arc::new(Defective { defect, sound: MemoryLog::new() }) as _
    })
}

/// Does one thing wrong, and leaves the rest to a sound log.
struct Defective {
    defect: Defect,
    sound: MemoryLog,
}

impl Defective {
    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }
}

impl EventLog for Defective {
    fn ports(&self) -> Ports<'_> {
        self.sound.ports().log(self).subscriptions(self).runs(self)
    }
}

#[async_trait]
impl Log for Defective {
    async fn append(&self, mut batch: Batch) -> Result<(), LogError> {
        let is_start = batch.records.first().is_some_and(|first| first.seq == 1);
        match self.defect {
            D::BeginsAnewWithEachSegment if is_start => {
                if let Some(moves) = &mut batch.moves {
                    moves.cursor.get_or_insert(backstop_event_log::Cursor::start());
                }
            }
            D::IgnoresMoves if !is_start => batch.moves = None,
            D::IgnoresMovesWithoutEvents if batch.records.is_empty() => return Ok(()),
            D::KeepsEndedPositions => {
                if let Some(moves) = &mut batch.moves {
                    moves.positions.retain(|(_, seq)| seq.is_some());
                }
            }
            D::OneOpenSegment if is_start && batch.run.as_str().starts_with("sub_") => {
                let open = self.sound.runs(RunFilter::new().segments()).await?;
                if let Some(open) = open.first() {
                    return Err(LogError::session_busy(open.session.clone(), open.run.clone()));
                }
            }
            _ => {}
        }
        match self.sound.append(batch.clone()).await {
            Err(LogError::Conflict { .. }) if self.is(D::AcceptsAnySegment) => {
                batch.moves = None;
                self.sound.append(batch).await
            }
            Err(LogError::Conflict { .. })
                if self.is(D::FencesEventsOnly) && batch.records.is_empty() =>
            {
                batch.run = "any".into();
                self.sound.append(batch).await
            }
            appended => appended,
        }
    }

    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.sound.claim(run).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.sound.claim_new(run)
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.sound.summary(run).await
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.sound.records(run, from_seq).await
    }
}

#[async_trait]
impl Subscriptions for Defective {
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        let mut known = self.sound.subscription(name).await?;
        if self.is(D::LosesThePattern) {
            known.iter_mut().for_each(|it| it.pattern = "*".into());
        }
        if let (D::SharesPositions, Some(known)) = (self.defect, &mut known) {
            for other in self.sound.subscriptions().await? {
                known.positions.extend(other.positions);
            }
        }
        Ok(known)
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        let mut all = self.sound.subscriptions().await?;
        if self.is(D::ListsByPattern) {
            all.sort_by(|a, b| (&a.pattern, b.segment).cmp(&(&b.pattern, a.segment)));
            all.reverse();
        }
        Ok(all)
    }
}

#[async_trait]
impl Runs for Defective {
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let mut runs = self.sound.runs(filter.clone()).await?;
        if self.is(D::ListsSegments) && !filter.segments {
            runs.extend(self.sound.runs(filter.segments()).await?);
        }
        Ok(runs)
    }

    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        self.sound.last_root(session).await
    }
}
