//! Runs that began in another process, or as another run.

mod episode;

use std::sync::Arc;

use backstop_clock::RunClock;
use backstop_event_log::{
    Claim, EventLog, InboxMessage, LogError, Record, RunState, RunWriter, session_of_fork,
};
use backstop_react_machine::{CANCEL, CheckedDefinition, Input, Machine, Replayed};
use layer0::ToolSpec;
use layer0::event::{Event, EventKind, ModelResponded, OperatorReturned, RunForked, RunResumed};
use layer0::id::{CallId, RunId};
use layer0::stop::Outcome;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::approvals::Approvals;
use super::listed::Sources;
use super::session::dead_dispatch;
use super::tools::Tools;
use super::{Parts, Run};
use crate::agent::inner::Inner;
use crate::effect::Effects;
use crate::error::{AgentError, RunFailure};
use crate::hook::HookContext;
use crate::journal::AnyJournal;
use crate::journal::Fact;
use crate::local_journal::LocalJournal;
use crate::outcome::RunOutcome;
use crate::place::Place;
use crate::record::fold::{Folded, tools_of};
use crate::resume_error::ResumeError;

/// A recorded run, to be gone on with.
pub(crate) struct Resumed {
    run: Box<Run>,
    follows: Option<RunId>,
    /// Says with which definition it goes on, where that is another one than before.
    adopting: Option<RunResumed>,
}

/// A copy of a recorded run, to be gone on with.
pub(crate) struct Copied {
    pub(crate) log: Arc<dyn EventLog>,
    /// Its own id.
    pub(crate) child: RunId,
    pub(crate) forked: RunForked,
    /// What is copied.
    pub(crate) records: Vec<Record>,
    pub(crate) folded: Folded,
    pub(crate) cancellation: CancellationToken,
    /// Whether the run that is copied is in another store.
    pub(crate) is_from_elsewhere: bool,
}

impl Resumed {
    /// Makes the run of a record. Without a claim it is over, and nothing is appended.
    pub(crate) async fn new(
        agent: Arc<Inner>,
        log: Arc<dyn EventLog>,
        folded: Folded,
        claim: Option<Claim>,
        (cancellation, place): (CancellationToken, Place),
    ) -> Self {
        let Folded { summary, events, definition, replayed, sessions, follows, .. } = folded;
        let context = HookContext { run: summary.run.clone(), session: summary.session.clone() };
        let usage = summary.usage;
        let writer = match claim {
            Some(claim) => RunWriter::resume(log, summary, claim),
            None => RunWriter::closed(summary),
        };
        let clock = clock_of(&agent, &replayed.machine);
        let recorded =
            Recorded { writer, context, definition, events, replayed, clock, cancellation, place };
        let mut run = recorded.open(agent).await;
        run.ledger = run.ledger.having_used(usage);
        run.sessions = sessions.into();
        Self { run, follows, adopting: None }
    }

    /// Makes the run of a copy, which is told at once where it was cut.
    pub(crate) async fn copied(agent: Arc<Inner>, copied: Copied) -> Self {
        let Copied { log, child, forked, records, folded, cancellation, is_from_elsewhere } =
            copied;
        let Folded { events, definition, mut replayed, sessions, follows, .. } = folded;
        let session = session_of_fork(&child);
        let mut writer = RunWriter::copy(log, child.clone(), &events, records);
        if is_from_elsewhere {
            writer = writer.from_elsewhere();
        }
        let usage = writer.summary().usage;
        let beyond = std::mem::take(&mut replayed.beyond);
        let clock = clock_of(&agent, &replayed.machine);
        replayed.machine.fork(clock.now(), child.clone(), forked, beyond);
        let context = HookContext { run: child, session: session.clone() };
        let place = Place::default();
        let recorded =
            Recorded { writer, context, definition, events, replayed, clock, cancellation, place };
        let mut run = recorded.open(agent).await;
        run.ledger = run.ledger.having_used(usage);
        run.sessions = std::iter::once(session).chain(sessions).collect();
        Self { run, follows, adopting: None }
    }

    pub(crate) fn machine(&self) -> &Machine {
        self.run.ledger.machine()
    }

    /// Writes down who goes on with the run, before the first decision that it waits for.
    pub(crate) fn by(mut self, by: RunResumed) -> Self {
        self.run.approvals = Approvals::resumed(Some(by));
        self
    }

    /// Goes on with another definition of the agent, before it is sorted out what its process left behind.
    pub(crate) fn adopting(mut self, by: RunResumed) -> Self {
        self.adopting = Some(by);
        self
    }

    /// Records the settlements in the inbox; nothing of the run is run.
    pub(crate) async fn settle(&mut self, rows: Vec<InboxMessage>) -> Result<(), ResumeError> {
        self.run.settle_without_owner(rows).await.map_err(unopened)
    }

    /// Asks the tools of answered calls whose outcome is unknown, before the run is opened again.
    pub(crate) async fn probe_answered(&mut self) -> Result<(), ResumeError> {
        self.run.probe_answered().await.map_err(unopened)
    }

    /// Takes a row of the inbox with the next append.
    pub(crate) fn take_row(&mut self, row: u64) {
        self.run.ledger.take_row(row);
    }

    /// Takes rows of the inbox with the next append, and returns what they add to the record.
    pub(crate) fn row_facts(&mut self, rows: Vec<InboxMessage>) -> Vec<EventKind> {
        let facts = rows.into_iter().flat_map(|row| self.run.row_facts(row));
        facts.map(|fact| fact.fact).collect()
    }

    /// Is the run over where its record ends?
    pub(crate) fn is_over(&self) -> bool {
        self.run.ledger.is_over()
    }

    /// Goes on, beginning with these facts.
    pub(crate) async fn go_on(mut self, first: Vec<EventKind>) -> Result<RunOutcome, RunFailure> {
        let Run { agent, context, .. } = &*self.run;
        let span = tracing::info_span!("run", run = %context.run, agent = %agent.definition.name);
        let begun = self.begin_again(first).instrument(span.clone()).await;
        match begun {
            Ok(()) => Box::pin(self.run.go()).instrument(span).await,
            Err(error) => Err(self.run.failure(error)),
        }
    }

    async fn begin_again(&mut self, mut first: Vec<EventKind>) -> Result<(), AgentError> {
        let Self { run, follows, adopting } = self;
        run.read_history(follows.as_ref()).await?;
        if let Some(resumed) = adopting.take() {
            let resumed = run.ledger.fact(resumed);
            run.ledger.step_while_open([resumed]).await?;
            first.push(run.ledger.machine().lost().into());
        }
        if run.ledger.is_over() {
            // What a copy brought along is recorded, and nothing else happens.
            return run.ledger.record().await;
        }
        let dead = run.dead_dispatches(&first).await?;
        let has_recovered = first.iter().any(|fact| matches!(fact, EventKind::RunRecovered(_)));
        let resumed = first.iter().take_while(|fact| matches!(fact, EventKind::RunResumed(_)));
        let resumed = resumed.count();
        let mut facts: Vec<_> = first.into_iter().map(|fact| run.ledger.fact(fact)).collect();
        // What its process left behind ended with it: the time since then is not the run's.
        let at = if resumed == 0 { run.ledger.machine().now() } else { run.ledger.at() };
        facts.splice(resumed..resumed, dead.into_iter().map(|returned| Input::fact(at, returned)));
        // What these facts make it ask, it asks by itself.
        let was_waiting = run.ledger.machine().is_waiting();
        run.ledger.step_while_open(facts).await?;
        if run.ledger.is_over() {
            return Ok(());
        }
        // A recovery asks for its open approvals itself.
        let is_recovered = has_recovered && run.ledger.machine().open_approvals().next().is_some();
        let was_waiting = was_waiting && !is_recovered && run.ledger.machine().is_waiting();
        // What came while the run had no owner counts before anything starts again.
        run.read_inbox().await?;
        if was_waiting {
            // What was decided meanwhile is not asked again; the rest is.
            let open: Vec<_> = run.ledger.machine().open_approvals().cloned().collect();
            open.into_iter().for_each(|approval| run.ask_approval(approval));
            run.take_up_dispatches().await?;
            if run.ledger.machine().is_due(run.ledger.at()) {
                run.unpark().await?;
            }
            if let Some(given) = run.ledger.machine().wants_budget() {
                run.ask_budget(given);
            }
        }
        Ok(())
    }
}

/// Returns the error of a run that was not opened again.
fn unopened(error: AgentError) -> ResumeError {
    match error {
        AgentError::Storage(error) => error.into(),
        error => LogError::Failed(error.into()).into(),
    }
}

/// What a run is made of whose record exists.
struct Recorded {
    writer: RunWriter,
    context: HookContext,
    definition: CheckedDefinition,
    events: Vec<Event>,
    replayed: Replayed,
    clock: RunClock,
    cancellation: CancellationToken,
    place: Place,
}

/// Returns the clock of a run that goes on. What was recorded may be ahead of the time of day.
fn clock_of(agent: &Inner, machine: &Machine) -> RunClock {
    let mut clock = RunClock::new(Arc::clone(&agent.clock));
    clock.not_before(machine.now());
    clock
}

impl Recorded {
    async fn open(self, agent: Arc<Inner>) -> Box<Run> {
        let Self { writer, context, definition, events, replayed, clock, cancellation, place } =
            self;
        let Replayed { machine, executions, .. } = replayed;
        let trace_parent = match events.first().map(|event| &event.kind) {
            Some(EventKind::RunStarted(started)) => started.trace_parent.clone(),
            _ => None,
        };
        let place = Place { trace_parent, ..place };
        let effects = Arc::new(Effects::new(Arc::clone(&agent), context.clone(), None, place));
        let (log, performs) = (agent.log.as_ref(), Arc::clone(&effects));
        let journal = LocalJournal::new(writer, performs, clock, log, cancellation);
        let acted = has_acted(&events);
        let journal = AnyJournal::Local(Box::new(journal));
        let parts = Parts { agent, definition, context, machine, journal, effects, feed: None };
        let mut run = Box::new(Run::new(parts).await);
        (run.depth, run.root) = place_of(&events, &run.context.run);
        run.tools = Tools::resumed(executions);
        run.sources = Sources::recorded(&events);
        run.acted = acted;
        run
    }
}

impl Run {
    /// Ends what was dispatched and is not gone on with, and returns what became of it: what tools
    /// dispatched on their way, and all of it where the run ends.
    async fn dead_dispatches(
        &mut self,
        first: &[EventKind],
    ) -> Result<Vec<OperatorReturned>, AgentError> {
        let Some(log) = self.agent.log.clone() else { return Ok(Vec::new()) };
        let machine = self.ledger.machine();
        let (mut is_recovered, mut is_ending) = (false, false);
        for fact in first {
            match fact {
                EventKind::RunRecovered(_) => {
                    is_recovered = true;
                    is_ending |= machine.is_crash_loop();
                }
                EventKind::SignalReceived(signal) => is_ending |= &*signal.name == CANCEL,
                _ => {}
            }
        }
        let mut returned = Vec::new();
        for open in machine.open_dispatches() {
            let is_ended = is_recovered && !machine.is_gone_on_with(&open.call_id);
            if is_ending || is_ended {
                let dispatch = (Arc::clone(&open.operator), open.run.clone());
                let session = &self.context.session;
                returned.push(dead_dispatch(&self.agent, &log, session, dispatch).await?);
            }
        }
        Ok(returned)
    }

    /// Ends what a call dispatched that cannot be gone on with, and returns what became of it.
    pub(super) async fn end_dispatches_of(
        &mut self,
        call: &CallId,
    ) -> Result<Vec<OperatorReturned>, AgentError> {
        let Some(log) = self.agent.log.clone() else { return Ok(Vec::new()) };
        let open = self.ledger.machine().open_dispatches().iter();
        let of_call = open.filter(|open| open.call_id == *call);
        let of_call: Vec<_> =
            of_call.map(|open| (Arc::clone(&open.operator), open.run.clone())).collect();
        let mut returned = Vec::new();
        for dispatch in of_call {
            let session = &self.context.session;
            returned.push(dead_dispatch(&self.agent, &log, session, dispatch).await?);
        }
        Ok(returned)
    }

    /// Ends a run below that failed without closing its record, such as one whose log failed.
    pub(super) async fn end_left_open(
        &mut self,
        returned: &mut OperatorReturned,
    ) -> Result<(), AgentError> {
        let Some(log) = self.agent.log.clone() else { return Ok(()) };
        if returned.outcome != Outcome::Failed {
            return Ok(());
        }
        let summary = log.summary(&returned.run).await?;
        if summary.is_some_and(|summary| summary.state == RunState::Running) {
            let dispatch = (Arc::clone(&returned.operator), returned.run.clone());
            let closed = dead_dispatch(&self.agent, &log, &self.context.session, dispatch).await?;
            returned.usage = closed.usage;
        }
        Ok(())
    }

    /// Takes in what is in the inbox now, before an answer that may end the run: what was accepted until then is said
    /// in time.
    pub(super) async fn read_before_the_end(
        &mut self,
        answer: &ModelResponded,
    ) -> Result<(), AgentError> {
        match answer.tool_calls.is_empty() && self.agent.log.is_some() {
            true => Box::pin(self.read_inbox()).await,
            false => Ok(()),
        }
    }

    /// Takes in what is in the inbox now.
    async fn read_inbox(&mut self) -> Result<(), AgentError> {
        self.ledger.watch();
        let (mut facts, mut is_answered) = (Vec::new(), false);
        while !is_answered {
            self.ledger.next(&mut facts).await?;
            for fact in facts.drain(..) {
                is_answered |= matches!(fact, Fact::Inbox(_));
                self.take(fact).await?;
            }
        }
        Ok(())
    }
}

/// Returns how many dispatches are above a run, and the run at the head of them.
fn place_of(events: &[Event], run: &RunId) -> (u32, RunId) {
    match events.first().map(|event| &event.kind) {
        // A copy has no caller.
        Some(EventKind::RunStarted(started)) => {
            let root = started.root.as_ref().filter(|_| started.parent.is_some());
            (started.depth, root.unwrap_or(run).clone())
        }
        _ => (0, run.clone()),
    }
}

/// Returns whether a tool ran that is not safe to repeat, by the definition under which it ran. A tool of a
/// definition that cannot be read is not known to be safe.
pub(super) fn has_acted(events: &[Event]) -> bool {
    let tools_of = |agent| tools_of(agent).unwrap_or_else(|_| Arc::default());
    let mut tools: Arc<[ToolSpec]> = Arc::default();
    events.iter().any(|event| match &event.kind {
        EventKind::RunStarted(started) => {
            tools = tools_of(&started.agent);
            false
        }
        EventKind::RunResumed(resumed) => {
            if let Some(agent) = &resumed.agent {
                tools = tools_of(agent);
            }
            false
        }
        EventKind::ToolRequested(requested) => {
            !tools.iter().any(|spec| spec.name == requested.tool && spec.idempotent)
        }
        _ => false,
    })
}
