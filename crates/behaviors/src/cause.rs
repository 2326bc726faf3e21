//! Which delivery led to an event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use backstop_event_log::{EventLog, LogError, RunSummary};
use layer0::Timestamp;
use layer0::event::{Cause, Event, EventKind};
use layer0::id::RunId;

/// How many deliveries may lead to one another.
pub(crate) const MAX_CHAIN: u32 = 8;
/// How many callers of a run are looked at.
const MAX_CALLERS: usize = 64;
/// The number of runs whose causes are kept.
const MAX_KNOWN: usize = 64;

/// The causes that the records of runs name, as far as they were read: a record is read once, and then what was added.
#[derive(Debug, Default)]
pub(crate) struct KnownCauses(Mutex<VecDeque<(RunId, Arc<NamedCauses>)>>);

/// The causes that a record names.
#[derive(Debug, Default, Clone)]
struct NamedCauses {
    /// The last event that was read.
    read: u64,
    /// The causes, each with the event that names it.
    causes: Vec<(u64, Timestamp, Cause)>,
    /// The events by which runs were dispatched.
    dispatched: BTreeMap<RunId, u64>,
}

/// The events of a run's record before a given event.
#[derive(Debug, Clone, Copy)]
struct Before<'a> {
    /// The event that ends it, if it is one of this record.
    seq: u64,
    at: Timestamp,
    /// The run below whose event it is, if it is one of another record.
    below: Option<&'a RunId>,
}

impl KnownCauses {
    /// Returns the delivery that led to an event: the one that is named last before it in its record or in those of its
    /// callers; of a failed delivery, that one.
    pub(crate) async fn find(
        &self,
        log: &dyn EventLog,
        event: &Event,
    ) -> Result<Option<Cause>, LogError> {
        if let EventKind::BehaviorFailed(failed) = &event.kind {
            let (behavior, run) = (failed.behavior.clone(), failed.run.clone());
            return Ok(Some(Cause::new(behavior, run, failed.seq, failed.length)));
        }
        let (mut next, mut seq) = (Some(event.run.clone()), event.seq);
        let mut below = None;
        for _ in 0..MAX_CALLERS {
            let Some(run) = next else { return Ok(None) };
            let Some(summary) = log.summary(&run).await? else { return Ok(None) };
            let before = Before { seq, at: event.at, below: below.as_ref() };
            if let Some(cause) = self.find_in(log, &summary, before).await? {
                return Ok(Some(cause));
            }
            // Causes of its callers count up to the dispatch.
            (next, seq) = (summary.parent, u64::MAX);
            below = Some(run);
        }
        Ok(None)
    }

    /// Returns the delivery that a run names last before an event.
    async fn find_in(
        &self,
        log: &dyn EventLog,
        summary: &RunSummary,
        before: Before<'_>,
    ) -> Result<Option<Cause>, LogError> {
        let kept = &summary.causes;
        let last = last_before(kept, before, 0);
        let is_whole = kept.len() < RunSummary::MAX_CAUSES;
        // Another machine's clock may have been ahead: what a caller recorded before it dispatched the run is earlier
        // whatever the clocks say.
        let is_sure = before.below.is_none() || kept.iter().all(|(_, at, _)| *at <= before.at);
        if is_sure && (is_whole || last.is_some()) {
            return Ok(last.cloned());
        }
        let named = self.read(log, summary).await?;
        let dispatched = before.below.and_then(|run| named.dispatched.get(run));
        Ok(last_before(&named.causes, before, dispatched.copied().unwrap_or(0)).cloned())
    }

    /// Reads what was added to a record since it was read last.
    async fn read(
        &self,
        log: &dyn EventLog,
        summary: &RunSummary,
    ) -> Result<Arc<NamedCauses>, LogError> {
        let run = &summary.run;
        let known = self.find_known(run).filter(|known| known.read <= summary.last_seq);
        let mut known = known.unwrap_or_default();
        if known.read == summary.last_seq {
            return Ok(known);
        }
        let named = Arc::make_mut(&mut known);
        for record in log.records(run, named.read + 1).await? {
            named.read = record.seq;
            match &*record.event_type {
                "run.started" | "run.reopened" | "signal.received" => {
                    match record.decode(run) {
                        // The summary keeps the last causes.
                        Err(LogError::Erased { .. }) => {
                            let mut kept = summary.causes.iter();
                            named.causes.extend(kept.find(|(seq, ..)| *seq == record.seq).cloned());
                        }
                        event => named.apply(event?),
                    }
                }
                "operator.dispatched" => {
                    if let Ok(event) = record.decode(run) {
                        named.apply(event);
                    }
                }
                _ => {}
            }
        }
        self.keep(run.clone(), Arc::clone(&known));
        Ok(known)
    }

    fn find_known(&self, run: &RunId) -> Option<Arc<NamedCauses>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(other, _)| other == run).map(|(_, named)| Arc::clone(named))
    }

    fn keep(&self, run: RunId, named: Arc<NamedCauses>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(other, _)| *other != run);
        known.push_back((run, named));
        if known.len() > MAX_KNOWN {
            known.pop_front();
        }
    }
}

impl NamedCauses {
    fn apply(&mut self, event: Event) {
        if let Some(cause) = event.kind.cause() {
            self.causes.push((event.seq, event.at, cause.clone()));
        }
        if let EventKind::OperatorDispatched(dispatched) = event.kind {
            self.dispatched.insert(dispatched.run, event.seq);
        }
    }
}

/// Returns the last cause that was named before an event, or before the run of that event was dispatched.
fn last_before<'c>(
    causes: &'c [(u64, Timestamp, Cause)],
    before: Before<'_>,
    dispatched: u64,
) -> Option<&'c Cause> {
    let is_before =
        |seq: u64, at: Timestamp| seq <= dispatched || (seq <= before.seq && at <= before.at);
    let mut latest = causes.iter().rev();
    latest.find(|(seq, at, _)| is_before(*seq, *at)).map(|(.., cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_event_log::{MemoryLog, RunWriter, Seed};
    use layer0::JsonText;
    use layer0::event::{
        Actor, AgentRecord, OperatorDispatched, RunStarted, SignalReceived, Warning,
    };

    /// Writes a run, whose events are at these times.
    async fn write(log: &Arc<dyn EventLog>, run: &str, events: Vec<(i64, EventKind)>) {
        let mut writer = RunWriter::new(Arc::clone(log), run.into());
        for (at, kind) in events {
            let at = Timestamp::from_millis(at);
            writer.stage(&Seed::new("s"), at, Actor::Runtime, None, kind);
        }
        drop(writer.commit().await.unwrap());
    }

    fn started(parent: Option<&str>) -> EventKind {
        let agent = AgentRecord::new("a", "", JsonText::default());
        let mut started = RunStarted::new("go", "ses".into(), agent);
        started.parent = parent.map(Into::into);
        started.into()
    }

    fn told(by: &str) -> EventKind {
        let mut signal = SignalReceived::new("told", 1.into());
        signal.cause = Some(Box::new(Cause::new(by, "run_0", 1, 1)));
        signal.into()
    }

    /// Spec: X5. A cause counts that its caller named before the dispatch, also where the clock of the machine that runs
    /// what was dispatched is behind.
    #[tokio::test]
    async fn cause_counts_whatever_the_clocks_say() {
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        let dispatched = OperatorDispatched::new("child", "run_2", 1, "0", Box::default());
        let caller = vec![
            (100, started(None)),
            (100, told("before")),
            (101, dispatched.into()),
            (200, told("after")),
        ];
        write(&log, "run_1", caller).await;
        write(&log, "run_2", vec![(50, started(Some("run_1"))), (51, Warning::new("x").into())])
            .await;
        let records = log.records(&"run_2".into(), 2).await.unwrap();
        let event = records[0].decode(&"run_2".into()).unwrap();
        let found = KnownCauses::default().find(&*log, &event).await.unwrap();
        assert_eq!(found.map(|cause| cause.subscription.to_string()).as_deref(), Some("before"));
    }
}
