//! The machine: state, inputs, outputs.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use layer0::Timestamp;
use layer0::event::{Actor, EventKind};
use layer0::id::{CallId, RunId};
use layer0::message::{Image, Message, Transcript};
use layer0::stop::Stop;
use layer0::usage::Usage;
use serde_json::Value;

use crate::approvals::Approvals;
use crate::batch::Batch;
use crate::definition::{AgentDefinition, DefinitionError};
use crate::digest::Fnv1a;
use crate::guards::Guards;
use crate::hooks::Paused;
use crate::io::{Effect, EffectId, Entry, Finish, Input, Misuse, Output};
use crate::recovery::INPUT;
use crate::turn::Turn;
use crate::typed::OutputCheck;

/// The signal that stops a run: a `signal.received` of this name.
pub const CANCEL: &str = "cancel";

/// One run. See the [crate documentation](crate).
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub(crate) definition: Arc<AgentDefinition>,
    pub(crate) phase: Phase,
    /// What the run was asked.
    pub(crate) input: Arc<str>,
    pub(crate) images: Arc<[Image]>,
    pub(crate) transcript: Transcript,
    pub(crate) usage: Usage,
    pub(crate) call_ids: BTreeSet<CallId>,
    pub(crate) guards: Guards,
    pub(crate) request_digest: Fnv1a,
    /// How many messages the digest covers.
    pub(crate) digested: usize,
    pub(crate) tools_digest: Arc<str>,
    /// The last text of the model, kept as the partial work of a run that fails.
    pub(crate) last_text: Arc<str>,
    pub(crate) approvals: Approvals,
    pub(crate) depth: u32,
    pub(crate) output_check: Option<OutputCheck>,
    /// What was said before in the conversation.
    pub(crate) history: Vec<Arc<Message>>,
    /// What to say to the model before it is asked next.
    pub(crate) further_input: Option<Arc<str>>,
    pub(crate) started: Timestamp,
    now: Timestamp,
    pub(crate) seq: u64,
    pub(crate) epoch: u32,
    effects: u32,
    outputs: VecDeque<Output>,
}

/// What the run is doing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    New,
    /// Hooks are called before the next step.
    Hooking(Paused),
    /// The memory is read.
    Recalling,
    Asking(Turn),
    Working(Batch),
    /// The memory is written, then the run ends like this.
    Memorizing {
        stop: Stop,
        output: Arc<str>,
    },
    Done(Finish),
}

impl Phase {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::New => "the run has not started",
            Self::Hooking(_) => "hooks are called",
            Self::Recalling => "the memory is read",
            Self::Memorizing { .. } => "the memory is written",
            Self::Asking(_) => "the model is asked",
            Self::Working(_) => "tools are at work",
            Self::Done(_) => "the run is over",
        }
    }
}

impl Machine {
    /// Makes a machine for one run.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`], when the definition cannot be run.
    pub fn new(definition: Arc<AgentDefinition>) -> Result<Self, DefinitionError> {
        definition.validate()?;
        let mut tools_digest = Fnv1a::default();
        tools_digest.add(&definition.tools);
        Ok(Self {
            definition,
            phase: Phase::New,
            input: Arc::default(),
            images: Arc::default(),
            transcript: Transcript::default(),
            usage: Usage::default(),
            call_ids: BTreeSet::new(),
            guards: Guards::default(),
            request_digest: Fnv1a::default(),
            digested: 0,
            tools_digest: tools_digest.hex(),
            last_text: Arc::default(),
            approvals: Approvals::default(),
            depth: 0,
            output_check: None,
            history: Vec::new(),
            further_input: None,
            started: Timestamp::default(),
            now: Timestamp::default(),
            seq: 0,
            epoch: 1,
            effects: 0,
            outputs: VecDeque::new(),
        })
    }

    /// Tells the machine which run it is, so that no other run has its questions. To be told before
    /// the first input.
    #[must_use]
    pub fn of_run(mut self, run: RunId) -> Self {
        self.approvals.run = Some(run);
        self
    }

    /// Tells the machine how many dispatches are above its run; 0 otherwise. To be told before the
    /// first input.
    #[must_use]
    pub const fn at_depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Tells the machine what was said before in the conversation, without what only instructs. To be
    /// told before the first input.
    #[must_use]
    pub fn after(mut self, history: Vec<Arc<Message>>) -> Self {
        self.history = history;
        self
    }

    /// Takes one input. Drain the outputs with [`Machine::poll`] afterwards.
    ///
    /// # Errors
    ///
    /// [`Misuse`], when the input does not fit; then nothing has changed.
    pub fn handle(&mut self, input: Input) -> Result<(), Misuse> {
        let Input { at, effect, fact } = input;
        self.check(effect, &fact)?;
        let before = self.now;
        self.advance(at);
        match fact {
            EventKind::RunStarted(started) => self.start(started),
            EventKind::ModelAttempted(attempted) => self.model_attempted(attempted),
            EventKind::ModelResponded(responded) => self.model_responded(responded),
            EventKind::ModelFailed(failed) => self.model_failed(failed),
            EventKind::ToolRequested(requested) => self.tool_requested(requested),
            EventKind::ToolResponded(responded) => self.tool_responded(responded),
            EventKind::MemoryRead(read) => {
                let entries = read.entries.clone();
                let seq = self.append(Actor::Memory, None, read);
                self.recalled(seq, &entries);
            }
            EventKind::MemoryWrote(wrote) => {
                let seq = self.append(Actor::Memory, None, wrote);
                self.memorized(seq);
            }
            EventKind::MemoryDegraded(degraded) => {
                let seq = self.append(Actor::Memory, None, degraded);
                match self.phase {
                    Phase::Recalling => self.recalled(seq, &[]),
                    _ => self.memorized(seq),
                }
            }
            EventKind::HookFailed(failed) => self.hook_failed(failed),
            EventKind::HookAborted(aborted) => self.hook_aborted(aborted),
            EventKind::ApprovalGranted(granted) => self.approval_granted(granted),
            EventKind::ApprovalDenied(denied) => self.approval_denied(denied),
            EventKind::RunRecovered(recovered) => self.recovered(before, recovered),
            EventKind::RunResumed(resumed) => self.resumed(before, resumed),
            EventKind::SignalReceived(signal) if &*signal.name == CANCEL && !self.is_ending() => {
                self.cancel(signal);
            }
            EventKind::SignalReceived(signal) if &*signal.name == INPUT => {
                self.input_received(signal);
            }
            note => self.note(note),
        }
        Ok(())
    }

    /// Returns the next output; see [`Output`].
    pub fn poll(&mut self) -> Output {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        match &self.phase {
            Phase::Done(finish) => Output::Finish(finish.clone()),
            Phase::New
            | Phase::Hooking(_)
            | Phase::Recalling
            | Phase::Asking(_)
            | Phase::Working(_)
            | Phase::Memorizing { .. } => Output::Wait,
        }
    }

    /// Returns the conversation so far.
    #[must_use]
    pub const fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Returns what the run has used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let wall_ms = elapsed_ms(self.started, self.now);
        Usage {
            wall_ms,
            cost_usd: self.definition.price.map(|price| price.of(&self.usage)),
            ..self.usage
        }
    }

    /// Returns how many entries there are.
    pub(crate) const fn events(&self) -> u64 {
        self.seq
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn advance(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }

    /// Does not count the time in which people thought.
    pub(crate) fn resume_clock(&mut self) {
        if let Some(since) = self.approvals.stop_waiting() {
            self.started = self.started.after(self.now.since(since));
        }
    }

    /// Returns code and count of a call that failed so often in a row that it must not be run again.
    #[must_use]
    pub fn repeated_failure(&self, name: &str, arguments: &Value) -> Option<(Arc<str>, u32)> {
        self.guards.repeated_failure(&self.definition.limits, name, arguments)
    }

    /// Returns what the model last said.
    #[must_use]
    pub const fn last_text(&self) -> &Arc<str> {
        &self.last_text
    }

    /// Records a fact that changes nothing here, under the call it belongs to.
    pub(crate) fn note(&mut self, note: EventKind) {
        let cause = self.cause_of(&note);
        if let Phase::Working(batch) = &mut self.phase {
            batch.note(&note);
        }
        self.append(Actor::Runtime, cause, note);
    }

    /// Returns the seq of what led to something that is not the machine's.
    pub(crate) fn cause_of(&self, kind: &EventKind) -> Option<u64> {
        match (&self.phase, call_of(kind)) {
            (Phase::Working(batch), Some(call_id)) => batch.cause_of(call_id),
            (Phase::Hooking(paused), _) => {
                let of_hook = matches!(kind, EventKind::HookFailed(_) | EventKind::HookAborted(_));
                of_hook.then_some(paused.cause)
            }
            _ => None,
        }
    }

    /// Queues an entry and returns its seq.
    pub(crate) fn append(
        &mut self,
        actor: Actor,
        caused_by: Option<u64>,
        kind: impl Into<EventKind>,
    ) -> u64 {
        self.seq += 1;
        let entry = Entry { seq: self.seq, at: self.now, actor, caused_by, kind: kind.into() };
        self.outputs.push_back(Output::Append(entry));
        self.seq
    }

    pub(crate) fn perform(&mut self, effect: Effect) {
        self.outputs.push_back(Output::Perform(effect));
    }

    pub(crate) fn next_effect(&mut self) -> EffectId {
        self.effects += 1;
        EffectId { epoch: self.epoch, number: self.effects }
    }
}

pub(crate) fn elapsed_ms(started: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.since(started).as_millis()).unwrap_or(u64::MAX)
}

/// Which call a note belongs to.
pub(crate) const fn call_of(note: &EventKind) -> Option<&CallId> {
    match note {
        EventKind::ErrorStored(stored) => Some(&stored.call_id),
        EventKind::HookAborted(aborted) => aborted.call_id.as_ref(),
        EventKind::HookFailed(failed) => failed.call_id.as_ref(),
        EventKind::ResultStored(stored) => Some(&stored.call_id),
        EventKind::ToolAttempted(attempted) => Some(&attempted.call_id),
        EventKind::ToolLate(late) => Some(&late.call_id),
        _ => None,
    }
}
