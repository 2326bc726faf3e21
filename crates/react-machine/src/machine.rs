//! The machine: facts in, entries and effects out.

mod adopt;
mod approvals;
mod check;
mod contract;
mod crash_loop;
mod dispatch;
mod end;
mod hooks;
mod model;
mod park;
mod recovery;
mod reopen;
mod settle;
mod short;
mod start;
mod step;
mod time;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::Timestamp;
use layer0::event::{Actor, EventKind};
use layer0::id::{CallId, RunId};
use layer0::message::Transcript;
use layer0::usage::Usage;

use crate::clock::Clock;
use crate::conversation::Conversation;
use crate::crashes::Crashes;
use crate::definition::CheckedDefinition;
use crate::denials::Denials;
use crate::guards::Guards;
use crate::hook::HookPoint;
use crate::io::{Effect, EffectId, Input, Misuse, Output};
use crate::machine::step::Step;
use crate::meter::Meter;
use crate::outbox::Outbox;
use crate::phase::Phase;
use crate::typed::OutputCheck;
use crate::unsettled::Unsettled;

/// The signal that stops a run: a `signal.received` of this name.
pub const CANCEL: &str = "cancel";

/// The signal that says something to the model before it is asked next: a `signal.received` of this
/// name, with the text as its data.
pub const INPUT: &str = "input";

/// The version of the machine, as `run.started` holds it. It grows when the same facts lead to other
/// decisions than before.
pub const VERSION: u32 = 2;

/// What the model would read of a call that a budget kept from running.
pub const BUDGET_CANCELLED: &str = "Cancelled: a budget of the run is used up";

/// What the model reads of a call that may have acted when the process died.
pub(crate) use layer0::text::INTERRUPTED;

/// One run. See the [crate documentation](crate).
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    phase: Phase,
    run: Run,
}

/// What a machine is told before its first input, beside the agent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Setup {
    /// The run, so that no other run has its approvals.
    pub run: RunId,
    /// What checks final answers; without it every answer fits.
    pub output_check: Option<OutputCheck>,
}

impl Setup {
    /// Makes a setup in which every answer fits.
    #[must_use]
    pub const fn new(run: RunId) -> Self {
        Self { run, output_check: None }
    }

    /// Checks final answers with this.
    #[must_use]
    pub fn checking_output(mut self, check: OutputCheck) -> Self {
        self.output_check = Some(check);
        self
    }
}

/// All of a run but what it is doing now, which the transitions are given.
#[derive(Debug, Clone, PartialEq)]
struct Run {
    id: RunId,
    definition: CheckedDefinition,
    labels: Arc<BTreeMap<String, String>>,
    output_check: Option<OutputCheck>,
    outbox: Outbox,
    clock: Clock,
    meter: Meter,
    conversation: Conversation,
    guards: Guards,
    denials: Denials,
    unsettled: Unsettled,
    crashes: Crashes,
    begun: Begun,
    /// Calls that were running when another definition came, and that are not safe to repeat by the one under
    /// which they began; and whether they only dispatch by that one.
    begun_otherwise: BTreeMap<CallId, bool>,
    /// How many model calls were made before this episode.
    calls_before: u32,
    /// Is it a copy of a run that was over, which goes on from any end?
    is_copy_of_an_end: bool,
    /// Whether a settlement decides the outcome of a running call: since version 2.
    settles_once: bool,
}

/// The progress of a run's beginning. What an earlier episode did not do of it is done in the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Begun {
    #[default]
    Nothing,
    /// The hooks let it begin, and its input can be answered.
    Admitted,
    /// The memory was read too.
    Whole,
}

impl Machine {
    /// Makes a machine for one run.
    #[must_use]
    pub fn new(definition: CheckedDefinition, setup: Setup) -> Self {
        let Setup { run: id, output_check } = setup;
        let run = Run {
            id,
            labels: Arc::default(),
            output_check,
            outbox: Outbox::default(),
            clock: Clock::default(),
            meter: Meter::new(&definition),
            conversation: Conversation::new(&definition),
            guards: Guards::default(),
            denials: Denials::default(),
            unsettled: Unsettled::default(),
            crashes: Crashes::default(),
            begun: Begun::default(),
            begun_otherwise: BTreeMap::new(),
            calls_before: 0,
            is_copy_of_an_end: false,
            settles_once: false,
            definition,
        };
        Self { phase: Phase::New, run }
    }

    /// Returns the agent: that which the run was started with, or which it was last resumed with.
    #[must_use]
    pub const fn definition(&self) -> &CheckedDefinition {
        &self.run.definition
    }

    /// Returns the labels that the run was started with.
    #[must_use]
    pub const fn labels(&self) -> &Arc<BTreeMap<String, String>> {
        &self.run.labels
    }

    /// Takes one input. Drain the outputs with [`Machine::poll`] afterwards.
    ///
    /// # Errors
    ///
    /// [`Misuse`], when the input does not fit; then nothing has changed.
    pub fn handle(&mut self, input: Input) -> Result<(), Misuse> {
        let Input { at, effect, fact } = input;
        let step = self.run.check(&mut self.phase, effect, fact)?;
        if let Some(next) = self.run.take(at, step) {
            self.phase = next;
        }
        Ok(())
    }

    /// Is the run over, for now?
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done(_))
    }

    /// Returns the next output; see [`Output`].
    pub fn poll(&mut self) -> Output {
        match (self.run.outbox.pop(), &self.phase) {
            (Some(output), _) => output,
            (None, Phase::Done(finish)) => Output::Finish(finish.clone()),
            (None, _) => Output::Wait,
        }
    }

    /// Returns what was said so far.
    #[must_use]
    pub const fn transcript(&self) -> &Transcript {
        self.run.conversation.transcript()
    }

    /// Returns what the model last said.
    #[must_use]
    pub const fn last_text(&self) -> &Arc<str> {
        self.run.conversation.last_text()
    }

    /// Returns what the run has used so far, with all that it dispatched and that has returned.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.run.usage()
    }

    /// Returns whether tokens of the run's own model attempts were estimated; those of child runs do not count.
    #[must_use]
    pub const fn has_estimates(&self) -> bool {
        self.run.meter.has_estimates()
    }

    /// Returns when the last input happened.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.run.clock.now()
    }

    /// Is this the model call that is waited for?
    #[must_use]
    pub fn is_asking(&self, id: EffectId) -> bool {
        matches!(&self.phase, Phase::Asking(turn) if turn.effect() == id)
    }

    /// Is a tool at work on this call?
    #[must_use]
    pub fn is_running(&self, id: &CallId) -> bool {
        self.phase.batch().is_some_and(|batch| batch.is_running(id))
    }

    /// Returns the point whose hooks are to be called now.
    #[must_use]
    pub const fn paused_at(&self) -> Option<HookPoint> {
        self.phase.paused_at()
    }
}

impl Run {
    /// Takes a step that fits. Returns what the run does next, where that changes.
    fn take(&mut self, at: Timestamp, step: Step<'_>) -> Option<Phase> {
        let before = self.clock.at_work_until();
        self.clock.advance(at);
        if step.is_settlement() {
            self.clock.leave(before);
        }
        if step.is_progress() {
            self.crashes.forget();
        }
        match step {
            Step::Start(started) => Some(self.start(started)),
            Step::ModelAttempted(turn, attempted) => self.model_attempted(turn, attempted),
            Step::ModelResponded(turn, responded) => Some(self.model_responded(turn, responded)),
            Step::ModelFailed(turn, failed) => Some(self.model_failed(turn, failed)),
            Step::Limited(turn, exhausted) => Some(self.limited(turn, exhausted)),
            Step::ToolRequested(batch, place, requested) => {
                self.tool_requested(batch, place, requested)
            }
            Step::ToolAttempted(batch, place, attempted) => {
                self.tool_attempted(batch, place, attempted)
            }
            Step::ToolResponded(batch, place, responded) => {
                self.tool_responded(batch, place, responded)
            }
            Step::ErrorStored(batch, place, stored) => self.error_stored(batch, place, stored),
            Step::Dispatched(cause, call, dispatched) => self.dispatched(cause, call, dispatched),
            Step::Granted(phase, granted) => self.granted(phase, granted),
            Step::WaitingBelow(waiting) => self.waiting_below(waiting),
            Step::GrantedBelow(granted) => self.granted_below(granted),
            Step::Returned(returned) => self.returned(returned),
            Step::MemoryRead(read) => Some(self.memory_read(read)),
            Step::MemoryUnread(degraded) => Some(self.memory_unread(degraded)),
            Step::MemoryWrote(stopped, note) => Some(self.memory_wrote(stopped, note)),
            Step::HookPassed(paused, passed) => Some(self.hook_passed(paused, passed)),
            Step::HookStopped(phase, stop) => self.hook_stopped(phase, stop),
            Step::Asked(batch, place, asked) => self.asked(batch, place, asked),
            Step::ApprovalGranted(batch, held, granted) => {
                self.approval_granted(batch, held, granted)
            }
            Step::ApprovalDenied(batch, held, denied) => self.approval_denied(batch, held, denied),
            Step::Recovered(phase, sorted, recovered) => {
                self.recovered(phase, &sorted, before, recovered)
            }
            Step::Resumed(phase, resumed, adopted) => {
                if let Some(definition) = adopted {
                    self.adopt(phase, definition);
                    self.take_approvals_back(phase);
                }
                self.resumed(phase, before, resumed)
            }
            Step::Parked(turn, parked) => Some(self.parked(turn.requested(), turn.ask(), parked)),
            Step::ParkedBelow(parked) => self.parked_below(parked),
            Step::Reopened(finish, reopened) => Some(self.reopened(&finish, before, reopened)),
            Step::Settled(batch, place, resolved) => self.settled(batch, place, resolved),
            Step::SettledLate(resolved) => self.settled_late(resolved),
            Step::ProbedLate(probed) => self.probed_late(probed),
            Step::Cancelled(phase, signal) => Some(self.cancel(phase, signal)),
            Step::Input(signal) => self.input_received(signal),
            Step::Noted(cause, note) => {
                if let EventKind::ToolProbed(probed) = &note {
                    self.unsettled.probed(probed);
                }
                self.append(Actor::Runtime, cause, note);
                None
            }
        }
    }

    fn usage(&self) -> Usage {
        self.usage_at(self.clock.now())
    }

    fn usage_at(&self, at: Timestamp) -> Usage {
        self.meter.usage(self.clock.elapsed_ms(at))
    }

    fn usage_at_work(&self, at: Timestamp) -> Usage {
        self.meter.usage(self.clock.elapsed_at_work_ms(at))
    }

    /// Returns how many entries there are.
    const fn events(&self) -> u64 {
        self.outbox.seq()
    }

    /// Queues an entry of now and returns its seq.
    fn append(&mut self, actor: Actor, caused_by: Option<u64>, kind: impl Into<EventKind>) -> u64 {
        self.outbox.append(self.clock.now(), actor, caused_by, kind.into())
    }

    fn perform(&mut self, effect: Effect) {
        self.outbox.perform(effect);
    }
}
