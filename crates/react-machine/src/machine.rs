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

/// Name of the signal that stops a run, in `signal.received`.
pub const CANCEL: &str = "cancel";

/// Name of the signal that adds a text to the model's next request, in `signal.received`, with the text as its data.
pub const INPUT: &str = "input";

/// Version of the machine, recorded in `run.started`. It increases when the same facts lead to other decisions than
/// before.
pub const VERSION: u32 = 2;

/// Text for the model about a call that a budget kept from running.
pub const BUDGET_CANCELLED: &str = "Cancelled: a budget of the run is used up";

/// Text for the model about a call that may have acted when the process died.
pub(crate) use layer0::text::INTERRUPTED;

/// The machine of one run. See the [crate documentation](crate).
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    phase: Phase,
    run: Run,
}

/// Settings of a machine in addition to the agent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Setup {
    /// Id of the run, which makes its approvals unique.
    pub run: RunId,
    /// Check of final answers; without it every answer fits.
    pub output_check: Option<OutputCheck>,
}

impl Setup {
    /// Returns a setup in which every answer fits.
    #[must_use]
    pub const fn new(run: RunId) -> Self {
        Self { run, output_check: None }
    }

    /// Sets the check of final answers.
    #[must_use]
    pub fn checking_output(mut self, check: OutputCheck) -> Self {
        self.output_check = Some(check);
        self
    }
}

/// State of a run except its phase, which the transitions receive separately.
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
    /// Calls that were running when another definition was adopted, and that are not safe to repeat by the definition
    /// under which they began, each with whether they only dispatch by that one.
    begun_otherwise: BTreeMap<CallId, bool>,
    /// Number of model calls before this episode.
    calls_before: u32,
    /// Whether it is a fork of an ended run, which can continue after any end.
    is_copy_of_an_end: bool,
    /// Whether a settlement decides the outcome of a running call: since version 2.
    settles_once: bool,
}

/// Progress of a run's beginning. Parts that an earlier episode did not complete are repeated in the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Begun {
    #[default]
    Nothing,
    /// The hooks let the run begin, and its input was accepted.
    Admitted,
    /// The memory was also read.
    Whole,
}

impl Machine {
    /// Returns a machine for one run.
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

    /// Returns the agent's definition, from the start of the run or the last adoption.
    #[must_use]
    pub const fn definition(&self) -> &CheckedDefinition {
        &self.run.definition
    }

    /// Returns the labels of the run, from its start.
    #[must_use]
    pub const fn labels(&self) -> &Arc<BTreeMap<String, String>> {
        &self.run.labels
    }

    /// Handles one input. Drain the outputs with [`Machine::poll`] afterwards.
    ///
    /// # Errors
    ///
    /// [`Misuse`] if the input does not fit; then nothing has changed.
    pub fn handle(&mut self, input: Input) -> Result<(), Misuse> {
        let Input { at, effect, fact } = input;
        let step = self.run.check(&mut self.phase, effect, fact)?;
        if let Some(next) = self.run.take(at, step) {
            self.phase = next;
        }
        Ok(())
    }

    /// Returns whether the run has ended, for now.
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

    /// Returns the transcript so far.
    #[must_use]
    pub const fn transcript(&self) -> &Transcript {
        self.run.conversation.transcript()
    }

    /// Returns the last text of the model.
    #[must_use]
    pub const fn last_text(&self) -> &Arc<str> {
        self.run.conversation.last_text()
    }

    /// Returns the usage of the run so far, including child runs that have returned.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.run.usage()
    }

    /// Returns whether tokens of the run's own model attempts were estimated; those of child runs do not count.
    #[must_use]
    pub const fn has_estimates(&self) -> bool {
        self.run.meter.has_estimates()
    }

    /// Returns the time of the last input.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.run.clock.now()
    }

    /// Returns whether this is the pending model call.
    #[must_use]
    pub fn is_asking(&self, id: EffectId) -> bool {
        matches!(&self.phase, Phase::Asking(turn) if turn.effect() == id)
    }

    /// Returns whether the tool of this call is running.
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
    /// Takes a step that fits. Returns the next phase, if it changes.
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

    /// Returns the number of entries.
    const fn events(&self) -> u64 {
        self.outbox.seq()
    }

    /// Queues an entry with the current time and returns its seq.
    fn append(&mut self, actor: Actor, caused_by: Option<u64>, kind: impl Into<EventKind>) -> u64 {
        self.outbox.append(self.clock.now(), actor, caused_by, kind.into())
    }

    fn perform(&mut self, effect: Effect) {
        self.outbox.perform(effect);
    }
}
