//! Runs that began in another process, or as another run.

mod episode;

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::RunClock;
use backstop_event_log::{
    Claim, EventLog, InboxMessage, LogError, Record, RunState, RunWriter, session_of_fork,
};
use backstop_react_machine::{CANCEL, CheckedDefinition, Machine, MachineInput, Replayed};
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
use super::{Run, RunParts};
use crate::agent::inner::AgentInner;
use crate::effect::Effects;
use crate::error::{AgentError, RunFailure};
use crate::hook::HookContext;
use crate::journal::AnyJournal;
use crate::journal::Fact;
use crate::local_journal::LocalJournal;
use crate::outcome::RunOutcome;
use crate::place::DispatchContext;
use crate::record::fold::{Folded, read_tools};

/// A recorded run, to be resumed.
pub(crate) struct Resumed {
    run: Box<Run>,
    follows: Option<RunId>,
    /// Event of the adoption, if the run resumes under another definition.
    adopting: Option<RunResumed>,
}

/// A fork of a recorded run, to be run.
pub(crate) struct Copied {
    pub(crate) log: Arc<dyn EventLog>,
    /// Its own run id.
    pub(crate) child: RunId,
    pub(crate) forked: RunForked,
    /// The records to copy.
    pub(crate) records: Vec<Record>,
    pub(crate) folded: Folded,
    pub(crate) cancellation: CancellationToken,
    /// Whether the source run is in another store.
    pub(crate) is_from_elsewhere: bool,
}

impl Resumed {
    /// Returns the run of a record. Settlements that were accepted while it had no owner are recorded first; nothing
    /// of the run is run. Without a claim, the run is over and nothing is appended.
    pub(crate) async fn open(
        agent: Arc<AgentInner>,
        log: Arc<dyn EventLog>,
        folded: Folded,
        claim: Option<Claim>,
        (cancellation, mut place): (CancellationToken, DispatchContext),
    ) -> Result<Self, LogError> {
        let rows = match claim {
            Some(_) => log.inbox(&folded.summary.run).await?,
            None => Vec::new(),
        };
        let Folded { summary, events, definition, replayed, sessions, follows, .. } = folded;
        // This process may not know what the run's task allowed.
        let allowed = events.first().and_then(|first| match &first.kind {
            EventKind::RunStarted(started) => started.max_park_ms.map(Duration::from_millis),
            _ => None,
        });
        place.max_park = place.max_park.or(allowed);
        let context = HookContext { run: summary.run.clone(), session: summary.session.clone() };
        let usage = summary.usage;
        let writer = match claim {
            Some(claim) => RunWriter::resume(log, summary, claim),
            None => RunWriter::new_closed(summary),
        };
        let clock = build_clock(&agent, &replayed.machine);
        let recorded = RecordedRunParts {
            writer,
            context,
            definition,
            events,
            replayed,
            clock,
            cancellation,
            place,
        };
        let mut run = recorded.open(agent).await;
        run.ledger = run.ledger.having_used(usage);
        run.sessions = sessions.into();
        run.settle_without_owner(rows).await.map_err(to_log_error)?;
        Ok(Self { run, follows, adopting: None })
    }

    /// Returns the run of a fork, whose first own event names the point of the fork.
    pub(crate) async fn open_fork(agent: Arc<AgentInner>, copied: Copied) -> Self {
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
        let clock = build_clock(&agent, &replayed.machine);
        replayed.machine.fork(clock.now(), child.clone(), forked, beyond);
        let context = HookContext { run: child, session: session.clone() };
        let place = DispatchContext::default();
        let recorded = RecordedRunParts {
            writer,
            context,
            definition,
            events,
            replayed,
            clock,
            cancellation,
            place,
        };
        let mut run = recorded.open(agent).await;
        run.ledger = run.ledger.having_used(usage);
        run.sessions = std::iter::once(session).chain(sessions).collect();
        Self { run, follows, adopting: None }
    }

    pub(crate) fn machine(&self) -> &Machine {
        self.run.ledger.machine()
    }

    /// Sets the event to record before the first decision that the run waits for.
    pub(crate) fn by(mut self, by: RunResumed) -> Self {
        self.run.approvals = Approvals::for_resumed_run(Some(by));
        self
    }

    /// Resumes under another definition of the agent, before the open calls of the dead process are handled.
    pub(crate) fn adopting(mut self, by: RunResumed) -> Self {
        self.adopting = Some(by);
        self
    }

    /// Probes answered calls of unknown outcome, before the run is reopened.
    pub(crate) async fn probe_answered(&mut self) -> Result<(), LogError> {
        self.run.probe_answered().await.map_err(to_log_error)
    }

    /// Takes a row of the inbox with the next append.
    pub(crate) fn take_row(&mut self, row: u64) {
        self.run.ledger.take_row(row);
    }

    /// Takes rows of the inbox with the next append, and returns their events.
    pub(crate) fn row_facts(&mut self, rows: Vec<InboxMessage>) -> Vec<EventKind> {
        let facts = rows.into_iter().flat_map(|row| self.run.row_facts(row));
        facts.map(|fact| fact.fact).collect()
    }

    /// Returns whether the run is over at the end of its record.
    pub(crate) fn is_over(&self) -> bool {
        self.run.ledger.is_over()
    }

    /// Continues the run, with these events first.
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
            first.push(run.ledger.machine().find_lost_steps().into());
        }
        if run.ledger.is_over() {
            // The copied events are recorded, and nothing else happens.
            return run.ledger.record().await;
        }
        let dead = run.dead_dispatches(&first).await?;
        let has_recovered = first.iter().any(|fact| matches!(fact, EventKind::RunRecovered(_)));
        let resumed = first.iter().take_while(|fact| matches!(fact, EventKind::RunResumed(_)));
        let resumed = resumed.count();
        let mut facts: Vec<_> = first.into_iter().map(|fact| run.ledger.fact(fact)).collect();
        // Child runs of the dead process ended with it: the time since then does not count for the run.
        let at = if resumed == 0 { run.ledger.machine().now() } else { run.ledger.at() };
        facts.splice(
            resumed..resumed,
            dead.into_iter().map(|returned| MachineInput::fact(at, returned)),
        );
        // Approvals that these events open are asked for by their own effects.
        let was_waiting = run.ledger.machine().is_waiting();
        run.ledger.step_while_open(facts).await?;
        if run.ledger.is_over() {
            return Ok(());
        }
        // A recovery asks for its open approvals itself.
        let is_recovered = has_recovered && run.ledger.machine().open_approvals().next().is_some();
        let was_waiting = was_waiting && !is_recovered && run.ledger.machine().is_waiting();
        // Requests that arrived while the run had no owner are handled before anything starts again.
        run.read_inbox().await?;
        if was_waiting {
            // Approvals that were decided meanwhile are not asked for again; the others are.
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

/// Returns the error of a run whose record could not be written.
fn to_log_error(error: AgentError) -> LogError {
    match error {
        AgentError::Storage(error) => error,
        error => LogError::Failed(error.into()),
    }
}

/// The parts of a run with a record.
struct RecordedRunParts {
    writer: RunWriter,
    context: HookContext,
    definition: CheckedDefinition,
    events: Vec<Event>,
    replayed: Replayed,
    clock: RunClock,
    cancellation: CancellationToken,
    place: DispatchContext,
}

/// Returns the clock of a resumed run. It never runs behind the record, whose times may be ahead of the time of day.
fn build_clock(agent: &AgentInner, machine: &Machine) -> RunClock {
    let mut clock = RunClock::new(Arc::clone(&agent.clock));
    clock.not_before(machine.now());
    clock
}

impl RecordedRunParts {
    async fn open(self, agent: Arc<AgentInner>) -> Box<Run> {
        let Self { writer, context, definition, events, replayed, clock, cancellation, place } =
            self;
        let Replayed { machine, executions, .. } = replayed;
        let trace_parent = match events.first().map(|event| &event.kind) {
            Some(EventKind::RunStarted(started)) => started.trace_parent.clone(),
            _ => None,
        };
        let place = DispatchContext { trace_parent, ..place };
        let effects = Arc::new(Effects::new(Arc::clone(&agent), context.clone(), None, place));
        let (log, performs) = (agent.log.as_ref(), Arc::clone(&effects));
        let journal = LocalJournal::new(writer, performs, clock, log, cancellation);
        let acted = has_acted(&events);
        let journal = AnyJournal::Local(Box::new(journal));
        let parts = RunParts { agent, definition, context, machine, journal, effects, feed: None };
        let mut run = Box::new(Run::new(parts).await);
        (run.depth, run.root) = read_depth_and_root(&events, &run.context.run);
        run.tools = Tools::for_resumed_run(executions);
        run.sources = Sources::from_events(&events);
        run.acted = acted;
        run
    }
}

impl Run {
    /// Ends child runs that are not resumed, and returns their outcomes: those whose call does not continue after a
    /// recovery, and all of them if the run ends.
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

    /// Ends the child runs of a call that cannot be resumed, and returns their outcomes.
    pub(super) async fn end_call_dispatches(
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

    /// Ends a child run that failed without closing its record, for example because its log failed.
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

    /// Handles the rows that are in the inbox now, before a model answer that may end the run: a request that was
    /// accepted until then is in time.
    pub(super) async fn read_before_the_end(
        &mut self,
        answer: &ModelResponded,
    ) -> Result<(), AgentError> {
        match answer.tool_calls.is_empty() && self.agent.log.is_some() {
            true => Box::pin(self.read_inbox()).await,
            false => Ok(()),
        }
    }

    /// Handles the rows that are in the inbox now.
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

/// Returns the depth of a run and the root of its callers.
fn read_depth_and_root(events: &[Event], run: &RunId) -> (u32, RunId) {
    match events.first().map(|event| &event.kind) {
        // A fork has no caller.
        Some(EventKind::RunStarted(started)) => {
            let root = started.root.as_ref().filter(|_| started.parent.is_some());
            (started.depth, root.unwrap_or(run).clone())
        }
        _ => (0, run.clone()),
    }
}

/// Returns whether a tool ran that is not safe to repeat, by the definition under which it ran. A tool of an unreadable
/// definition is not known to be safe.
pub(super) fn has_acted(events: &[Event]) -> bool {
    let tools_of = |agent| read_tools(agent).unwrap_or_else(|_| Arc::default());
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
