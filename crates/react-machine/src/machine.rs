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

use crate::clock::RunTimer;
use crate::conversation::RunConversation;
use crate::crashes::Crashes;
use crate::definition::CheckedDefinition;
use crate::denials::Denials;
use crate::guards::Guards;
use crate::hook::HookPoint;
use crate::io::{EffectId, MachineAction, MachineInput, MachineOutput, Misuse};
use crate::machine::step::Transition;
use crate::meter::Meter;
use crate::outbox::Outbox;
use crate::phase::RunPhase;
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
    phase: RunPhase,
    run: MachineState,
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
struct MachineState {
    id: RunId,
    definition: CheckedDefinition,
    labels: Arc<BTreeMap<String, String>>,
    output_check: Option<OutputCheck>,
    outbox: Outbox,
    clock: RunTimer,
    meter: Meter,
    conversation: RunConversation,
    guards: Guards,
    denials: Denials,
    unsettled: Unsettled,
    crashes: Crashes,
    begun: StartProgress,
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
enum StartProgress {
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
        let run = MachineState {
            id,
            labels: Arc::default(),
            output_check,
            outbox: Outbox::default(),
            clock: RunTimer::default(),
            meter: Meter::new(&definition),
            conversation: RunConversation::new(&definition),
            guards: Guards::default(),
            denials: Denials::default(),
            unsettled: Unsettled::default(),
            crashes: Crashes::default(),
            begun: StartProgress::default(),
            begun_otherwise: BTreeMap::new(),
            calls_before: 0,
            is_copy_of_an_end: false,
            settles_once: false,
            definition,
        };
        Self { phase: RunPhase::New, run }
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
    pub fn handle(&mut self, input: MachineInput) -> Result<(), Misuse> {
        let MachineInput { at, effect, fact } = input;
        let step = self.run.check(&mut self.phase, effect, fact)?;
        if let Some(next) = self.run.take(at, step) {
            self.phase = next;
        }
        Ok(())
    }

    /// Returns whether the run has ended, for now.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, RunPhase::Done(_))
    }

    /// Returns the next output; see [`MachineOutput`].
    pub fn poll(&mut self) -> MachineOutput {
        match (self.run.outbox.pop(), &self.phase) {
            (Some(output), _) => output,
            (None, RunPhase::Done(finish)) => MachineOutput::Finish(finish.clone()),
            (None, _) => MachineOutput::Wait,
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
        matches!(&self.phase, RunPhase::Asking(turn) if turn.effect() == id)
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

impl MachineState {
    /// Takes a step that fits. Returns the next phase, if it changes.
    fn take(&mut self, at: Timestamp, step: Transition<'_>) -> Option<RunPhase> {
        let before = self.clock.at_work_until();
        self.clock.advance(at);
        if step.is_settlement() {
            self.clock.leave(before);
        }
        if step.is_progress() {
            self.crashes.forget();
        }
        match step {
            Transition::Start(started) => Some(self.start(started)),
            Transition::ModelAttempted(turn, attempted) => self.model_attempted(turn, attempted),
            Transition::ModelResponded(turn, responded) => {
                Some(self.model_responded(turn, responded))
            }
            Transition::ModelFailed(turn, failed) => Some(self.model_failed(turn, failed)),
            Transition::Limited(turn, exhausted) => Some(self.stop_at_spend_limit(turn, exhausted)),
            Transition::ToolRequested(batch, place, requested) => {
                self.tool_requested(batch, place, requested)
            }
            Transition::ToolAttempted(batch, place, attempted) => {
                self.tool_attempted(batch, place, attempted)
            }
            Transition::ToolResponded(batch, place, responded) => {
                self.tool_responded(batch, place, responded)
            }
            Transition::ErrorStored(batch, place, stored) => {
                self.error_stored(batch, place, stored)
            }
            Transition::Dispatched(cause, call, dispatched) => {
                self.record_dispatch(cause, call, dispatched)
            }
            Transition::Granted(phase, granted) => self.continue_with_grant(phase, granted),
            Transition::WaitingBelow(waiting) => self.waiting_below(waiting),
            Transition::GrantedBelow(granted) => self.granted_below(granted),
            Transition::Returned(returned) => self.record_return(returned),
            Transition::MemoryRead(read) => Some(self.memory_read(read)),
            Transition::MemoryUnread(degraded) => Some(self.memory_unread(degraded)),
            Transition::MemoryWrote(stopped, note) => Some(self.memory_wrote(stopped, note)),
            Transition::HookPassed(paused, passed) => Some(self.hook_passed(paused, passed)),
            Transition::HookStopped(phase, stop) => self.hook_stopped(phase, stop),
            Transition::Asked(batch, place, asked) => self.open_person_request(batch, place, asked),
            Transition::ApprovalGranted(batch, held, granted) => {
                self.approval_granted(batch, held, granted)
            }
            Transition::ApprovalDenied(batch, held, denied) => {
                self.approval_denied(batch, held, denied)
            }
            Transition::Recovered(phase, sorted, recovered) => {
                self.recover(phase, &sorted, before, recovered)
            }
            Transition::Resumed(phase, resumed, adopted) => {
                if let Some(definition) = adopted {
                    self.adopt(phase, definition);
                    self.take_approvals_back(phase);
                }
                self.resume(phase, before, resumed)
            }
            Transition::Parked(turn, parked) => {
                Some(self.park(turn.request_seq(), turn.ask(), parked))
            }
            Transition::ParkedBelow(parked) => self.parked_below(parked),
            Transition::Reopened(finish, reopened) => Some(self.reopen(&finish, before, reopened)),
            Transition::Settled(batch, place, resolved) => self.settle(batch, place, resolved),
            Transition::SettledLate(resolved) => self.settled_late(resolved),
            Transition::ProbedLate(probed) => self.probed_late(probed),
            Transition::Cancelled(phase, signal) => Some(self.cancel(phase, signal)),
            Transition::Input(signal) => self.input_received(signal),
            Transition::Noted(cause, note) => {
                if let EventKind::ToolProbed(probed) = &note {
                    self.unsettled.record_probe(probed);
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

    fn perform(&mut self, effect: MachineAction) {
        self.outbox.perform(effect);
    }
}
