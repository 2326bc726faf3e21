//! The delivery that caused an event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use backstop_event_log::{EventLog, LogError, RunSummary};
use layer0::Timestamp;
use layer0::event::{Cause, Event, EventKind};
use layer0::id::RunId;

/// Maximum length of a chain of deliveries that caused each other.
pub(crate) const MAX_CHAIN: u32 = 8;
/// Maximum number of callers of a run that are searched.
const MAX_CALLERS: usize = 64;
/// Number of runs whose causes are cached.
const MAX_KNOWN: usize = 64;

/// Cache of the causes that records of runs name. A record is read once; later reads only add new events.
#[derive(Debug, Default)]
pub(crate) struct KnownCauses(Mutex<VecDeque<(RunId, Arc<NamedCauses>)>>);

/// The causes that a record names, as far as it was read.
#[derive(Debug, Default, Clone)]
struct NamedCauses {
    /// Number of the last event read.
    read: u64,
    /// The causes, each with the event that names it.
    causes: Vec<(u64, Timestamp, Cause)>,
    /// The events that dispatched child runs.
    dispatched: BTreeMap<RunId, u64>,
}

/// The part of a run's record before a given event.
#[derive(Debug, Clone, Copy)]
struct Before<'a> {
    /// Number of the given event if it is in this record, else `u64::MAX`.
    seq: u64,
    at: Timestamp,
    /// The child run with the given event if it is in another record.
    below: Option<&'a RunId>,
}

impl KnownCauses {
    /// Returns the delivery that caused an event: the last one named before it in its own record or in those of its
    /// callers. A `behavior.failed` event has the cause that its delivery had.
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
            // Causes in a caller's record count up to the dispatch of the child run.
            (next, seq) = (summary.parent, u64::MAX);
            below = Some(run);
        }
        Ok(None)
    }

    /// Returns the last delivery that a run names before an event.
    async fn find_in(
        &self,
        log: &dyn EventLog,
        summary: &RunSummary,
        before: Before<'_>,
    ) -> Result<Option<Cause>, LogError> {
        let kept = &summary.causes;
        let last = last_before(kept, before, 0);
        let is_whole = kept.len() < RunSummary::MAX_CAUSES;
        // The clock of another machine may have been ahead: an event that a caller recorded before the dispatch is
        // earlier whatever its timestamp is.
        let is_sure = before.below.is_none() || kept.iter().all(|(_, at, _)| *at <= before.at);
        if is_sure && (is_whole || last.is_some()) {
            return Ok(last.cloned());
        }
        let named = self.read(log, summary).await?;
        let dispatched = before.below.and_then(|run| named.dispatched.get(run));
        Ok(last_before(&named.causes, before, dispatched.copied().unwrap_or(0)).cloned())
    }

    /// Reads the events added to a record since the last read.
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

/// Returns the last cause named before an event, or before the dispatch of the event's run.
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

    /// Writes a run with events at these times.
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
