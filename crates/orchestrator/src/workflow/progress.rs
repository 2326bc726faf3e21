//! The state of a workflow's run, folded from its events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use layer0::Timestamp;
use layer0::event::{
    Event, EventKind, LostTail, OperatorDispatched, OperatorRefused, OperatorReturned, RunStarted,
    RunWaiting, WaitFor,
};
use layer0::failure::Effect;
use layer0::id::{ApprovalId, RunId};
use layer0::operator::Signal;
use layer0::stop::Outcome;
use layer0::usage::{Allowance, Usage};

use super::diverged::Diverged;
use crate::usage::beyond;

/// Maximum number of consecutive recoveries of a run without a finished step.
pub(super) const MAX_RECOVERIES: u32 = 3;

/// The progress of a workflow's run.
#[derive(Debug, Default)]
pub(super) struct WorkflowProgress {
    /// The start of the run, with its current definition.
    pub(super) started: Option<Box<RunStarted>>,
    pub(super) steps: BTreeMap<Arc<str>, StepRecord>,
    /// The steps refused before a run began, by path, each with the number of its event.
    pub(super) refused: BTreeMap<Arc<str>, (u64, OperatorRefused)>,
    /// The routes taken, by step, each with the number of its event.
    pub(super) routed: BTreeMap<Arc<str>, (u64, Arc<str>)>,
    /// Budget granted by the caller in addition to the first allowance.
    pub(super) granted: Vec<Option<Allowance>>,
    /// The wait of the run if it only waits.
    pub(super) waiting: Option<RunWaiting>,
    /// Time for which the run was running.
    pub(super) worked: Duration,
    /// Number of recoveries since the last finished step.
    pub(super) recoveries: u32,
    /// Whether the run was cancelled.
    pub(super) is_cancelled: bool,
    /// Other signals received, in order.
    pub(super) signals: Vec<Signal>,
    /// The number of steps without a record that may have been dispatched in lost events.
    pub(super) lost_steps: u64,
    /// Number of events applied.
    taken: u64,
    /// Number of events applied when the code last requested something new.
    decided_at: u64,
    paths: BTreeMap<RunId, Arc<str>>,
    last_at: Option<Timestamp>,
    last_seq: u64,
    /// The last event that ended a step; before that, the first event of the run.
    last_end: Option<u64>,
}

/// A recorded step of a workflow.
#[derive(Debug)]
pub(super) struct StepRecord {
    /// The event of its dispatch.
    seq: u64,
    pub(super) dispatched: OperatorDispatched,
    /// Budget granted in addition to its first allowance, in order.
    pub(super) grants: Vec<Option<Allowance>>,
    /// Its last recorded wait.
    pub(super) waits: Option<(WaitFor, Vec<ApprovalId>)>,
    pub(super) returned: Option<OperatorReturned>,
    /// Usage over all its returns.
    pub(super) used: Usage,
    /// Whether the step has to be tried again: it had failed when the run was reopened, and the code requested nothing
    /// after that failure.
    pub(super) is_tried_again: bool,
    /// The number of the event of its end.
    pub(super) returned_at: u64,
}

impl StepRecord {
    /// Returns the end of the step, unless it is to be tried again.
    pub(super) fn end(&self) -> Option<&OperatorReturned> {
        self.returned.as_ref().filter(|_| !self.is_tried_again)
    }

    /// Returns the end of a step that cannot be tried again: it has no record, and may have acted.
    pub(super) fn final_failure(&self) -> Option<&OperatorReturned> {
        let returned = self.returned.as_ref().filter(|_| self.is_tried_again)?;
        let may_have_acted = returned.effect != Some(Effect::None);
        (self.dispatched.unrecorded && !returned.superseded && may_have_acted).then_some(returned)
    }

    /// Returns whether a step without a record may start again although its task is not idempotent.
    pub(super) fn did_nothing(&self) -> bool {
        let failed_without_effect =
            |returned: &OperatorReturned| returned.effect == Some(Effect::None);
        self.is_tried_again && self.returned.as_ref().is_some_and(failed_without_effect)
    }

    /// Returns whether the step has begun and not ended.
    pub(super) const fn is_open(&self) -> bool {
        self.returned.is_none()
    }

    /// Returns whether the step is open and keeps a record, which counts the deaths of its process.
    pub(super) const fn counts_deaths(&self) -> bool {
        self.is_open() && !self.dispatched.unrecorded
    }

    /// Returns the allowance of its dispatch; `None` without a bound.
    pub(super) fn first_allowance(&self) -> Option<Allowance> {
        let first = *self.dispatched.allowance;
        (first != Allowance::without_bounds()).then_some(first)
    }

    /// Returns its allowance with all grants; `None` without a bound.
    pub(super) fn total_allowance(&self) -> Option<Allowance> {
        let bounded = self.first_allowance()?;
        Some(self.grants.iter().flatten().fold(bounded, |given, more| given.plus(more)))
    }
}

impl WorkflowProgress {
    /// Folds a record.
    pub(super) fn from_events(events: &[Event]) -> Result<Self, Diverged> {
        let mut progress = Self::default();
        for event in events {
            progress.apply(event.seq, event.at, &event.kind)?;
        }
        Ok(progress)
    }

    /// Applies the next event. An event about a step that does not follow from the earlier events is refused.
    pub(super) fn apply(
        &mut self,
        seq: u64,
        at: Timestamp,
        kind: &EventKind,
    ) -> Result<(), Diverged> {
        self.pass(at, kind);
        self.last_seq = seq;
        self.taken += 1;
        match kind {
            EventKind::RunStarted(started) => {
                self.last_end = Some(seq);
                self.started = Some(Box::new(started.clone()));
            }
            EventKind::RunResumed(resumed) => {
                self.lose(resumed.lost_tail);
                if let (Some(started), Some(agent)) = (&mut self.started, &resumed.agent) {
                    started.agent.clone_from(agent);
                }
            }
            EventKind::OperatorDispatched(dispatched) => self.apply_dispatch(dispatched)?,
            EventKind::OperatorWaiting(waiting) => {
                let step = self.find_step_mut(&waiting.run)?;
                step.waits = Some((waiting.r#for, waiting.approvals.clone()));
            }
            EventKind::OperatorReturned(returned) => {
                let taken = self.taken;
                let step = self.find_step_mut(&returned.run)?;
                (step.returned, step.is_tried_again) = (Some(returned.clone()), false);
                step.returned_at = taken;
                step.used.add_dispatched(&returned.usage);
                self.last_end = Some(seq);
                self.recoveries = 0;
            }
            EventKind::OperatorRefused(refused) => {
                self.refused.insert(Arc::clone(&refused.step), (self.taken, refused.clone()));
            }
            EventKind::BudgetGranted(granted) => {
                let more = granted.allowance.as_deref().copied();
                let is_own = self.started.as_ref().is_some_and(|started| {
                    started.run.as_ref().is_none_or(|run| *run == granted.run)
                });
                match is_own {
                    true => self.granted.push(more),
                    false => self.find_step_mut(&granted.run)?.grants.push(more),
                }
            }
            EventKind::WorkflowRouted(routed) => {
                self.decided_at = self.taken;
                self.routed.insert(Arc::clone(&routed.step), (self.taken, Arc::clone(&routed.to)));
            }
            EventKind::RunWaiting(waiting) => self.waiting = Some(waiting.clone()),
            EventKind::RunRecovered(_) => self.recoveries += 1,
            EventKind::SignalReceived(signal) if &*signal.name == Signal::CANCEL => {
                self.is_cancelled = true;
            }
            EventKind::SignalReceived(signal) => {
                let data = signal.data.clone();
                self.signals.push(Signal::new(&*signal.name, data));
            }
            EventKind::RunReopened(reopened) => {
                self.lose(reopened.lost_tail);
                (self.recoveries, self.is_cancelled) = (0, false);
                // The next requests of the code depend on the ends of the steps before.
                let decided_at = self.decided_at;
                for step in self.steps.values_mut() {
                    let failed = |it: &OperatorReturned| it.outcome == Outcome::Failed;
                    let has_failed =
                        step.returned_at > decided_at && step.returned.as_ref().is_some_and(failed);
                    // The code never received the end of a superseded step.
                    step.is_tried_again =
                        has_failed || step.returned.as_ref().is_some_and(|it| it.superseded);
                }
                self.refused.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies the loss of a tail of events: each of them may have been a dispatch.
    fn lose(&mut self, lost: Option<LostTail>) {
        if let Some(tail) = lost {
            self.lost_steps += (tail.seq + 1).saturating_sub(self.last_seq);
        }
    }

    fn apply_dispatch(&mut self, dispatched: &OperatorDispatched) -> Result<(), Diverged> {
        let seq = self.last_seq;
        let Some(path) = dispatched.step.clone() else {
            return Err(Diverged::of_record(seq, "a step", "a dispatch without a step"));
        };
        if let Some(step) = self.steps.get_mut(&path) {
            let before = &step.dispatched;
            let same = before.run == dispatched.run
                && before.operator == dispatched.operator
                && before.input_digest == dispatched.input_digest
                && before.attempt < dispatched.attempt;
            let is_open = step.returned.is_none() || step.is_tried_again;
            if !same || !is_open {
                let expected = format!("another attempt of `{path}`");
                return Err(Diverged::of_record(seq, expected, "another dispatch of it"));
            }
            (step.dispatched, step.seq) = (dispatched.clone(), seq);
            (step.returned, step.waits, step.is_tried_again) = (None, None, false);
            return Ok(());
        }
        self.decided_at = self.taken;
        self.lost_steps = self.lost_steps.saturating_sub(1);
        self.refused.remove(&path);
        self.paths.insert(dispatched.run.clone(), Arc::clone(&path));
        let step = StepRecord {
            seq,
            dispatched: dispatched.clone(),
            grants: Vec::new(),
            waits: None,
            returned: None,
            used: Usage::free(),
            is_tried_again: false,
            returned_at: 0,
        };
        self.steps.insert(path, step);
        Ok(())
    }

    fn find_step_mut(&mut self, run: &RunId) -> Result<&mut StepRecord, Diverged> {
        let seq = self.last_seq;
        let path = self.paths.get(run);
        let step = path.and_then(|path| self.steps.get_mut(path));
        step.ok_or_else(|| Diverged::of_record(seq, "a run that was dispatched", run.to_string()))
    }

    /// Returns the step of a run.
    pub(super) fn step_by_run(&self, run: &RunId) -> Option<&StepRecord> {
        self.steps.get(self.paths.get(run)?)
    }

    /// Returns the event that causes the given one, if it is about a step.
    pub(super) fn find_cause(&self, kind: &EventKind) -> Option<u64> {
        let run = match kind {
            EventKind::OperatorDispatched(dispatched) => match self.step_by_run(&dispatched.run) {
                None => return self.last_end,
                Some(_) => &dispatched.run,
            },
            EventKind::OperatorWaiting(waiting) => &waiting.run,
            EventKind::OperatorReturned(returned) => &returned.run,
            EventKind::BudgetGranted(granted) => &granted.run,
            _ => return None,
        };
        Some(self.step_by_run(run)?.seq)
    }

    /// Returns the part of `used` since the run last returned.
    pub(super) fn used_since(&self, run: &RunId, used: &Usage) -> Usage {
        self.step_by_run(run).map_or(*used, |step| beyond(used, &step.used))
    }

    /// Adds the time since the last event, unless the run waited or had no process.
    fn pass(&mut self, at: Timestamp, kind: &EventKind) {
        let had_no_process = matches!(
            kind,
            EventKind::RunRecovered(_) | EventKind::RunResumed(_) | EventKind::RunReopened(_)
        );
        let since = self.last_at.replace(at);
        if let Some(since) = since.filter(|_| self.waiting.is_none() && !had_no_process) {
            // time of day: both are from the same process, whose clock of the run is not set.
            self.worked += at.since(since);
        }
        self.waiting = None;
    }

    /// Returns the time of the last event.
    pub(super) fn last_at(&self) -> Timestamp {
        self.last_at.unwrap_or_default()
    }
}
