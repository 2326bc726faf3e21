//! Drivers of runs that began in another process, or as another run.

use std::sync::Arc;

use event_log::{EventLog, Record, RunSummary, RunWriter, session_of_fork};
use layer0::event::{Event, EventKind};
use layer0::id::{RunId, SessionId};
use react_machine::{AgentDefinition, Machine, Output};
use tracing::Instrument;

use crate::agent::{Inner, RunRequest};
use crate::driver::Driver;
use crate::error::{AgentError, RunFailure};
use crate::outcome::RunOutcome;

impl Driver {
    /// Makes the driver of a recorded run.
    pub(crate) fn resuming(
        agent: Arc<Inner>,
        log: Arc<dyn EventLog>,
        summary: RunSummary,
        definition: Arc<AgentDefinition>,
        events: &[Event],
        sessions: Vec<SessionId>,
    ) -> Self {
        let mut request = RunRequest::new("").run(summary.run.clone());
        request.session = Some(summary.session.clone());
        let mut driver = Self::new(agent, request);
        driver.usage = summary.usage;
        driver.writer = RunWriter::resume(log, summary);
        driver.sessions = sessions.into();
        driver.recorded(definition, events);
        driver
    }

    /// Makes the driver of a copy of a recorded run.
    pub(crate) fn copying(
        agent: Arc<Inner>,
        log: Arc<dyn EventLog>,
        child: RunId,
        definition: Arc<AgentDefinition>,
        events: &[Event],
        records: Vec<Record>,
        sessions: Vec<SessionId>,
    ) -> Self {
        let own = session_of_fork(&child);
        let mut request = RunRequest::new("").run(child.clone());
        request.session = Some(own.clone());
        let mut driver = Self::new(agent, request);
        driver.writer = RunWriter::copy(log, child, events, records);
        driver.usage = driver.writer.summary().usage;
        driver.recorded(definition, events);
        driver.sessions = std::iter::once(own).chain(sessions).collect();
        driver
    }

    fn recorded(&mut self, definition: Arc<AgentDefinition>, events: &[Event]) {
        self.acted = has_acted(&definition, events);
        self.definition = definition;
    }

    /// Is the run over?
    pub(crate) const fn is_over(&self) -> bool {
        self.finish.is_some()
    }

    /// Goes on with a machine that was rebuilt, beginning with these facts.
    pub(crate) async fn go_on(
        self: Box<Self>,
        machine: Box<Machine>,
        first: Vec<EventKind>,
    ) -> Result<RunOutcome, RunFailure> {
        let span = tracing::info_span!("run", run = %self.run, agent = %self.agent.definition.name);
        self.go_on_in_span(machine, first).instrument(span).await
    }

    async fn go_on_in_span(
        mut self: Box<Self>,
        mut machine: Box<Machine>,
        first: Vec<EventKind>,
    ) -> Result<RunOutcome, RunFailure> {
        match self.begin_again(&mut machine, first).await {
            Ok(()) => self.finish_up(machine).await,
            Err(error) => Err(self.failure(&machine, error)),
        }
    }

    async fn begin_again(
        &mut self,
        machine: &mut Machine,
        first: Vec<EventKind>,
    ) -> Result<(), AgentError> {
        if self.finish.is_none()
            && let Output::Finish(finish) = machine.poll()
        {
            self.finish = Some(finish);
        }
        if self.finish.is_some() {
            // What a copy brought along is appended, and nothing else happens.
            return self.commit(machine).await;
        }
        let facts: Vec<_> = first.into_iter().map(|fact| self.fact(fact)).collect();
        self.step(machine, facts).await?;
        if machine.is_waiting() && !self.take_decisions(machine).await? {
            let open: Vec<_> = machine.open_approvals().cloned().collect();
            open.into_iter().for_each(|approval| self.ask_approval(approval));
        }
        Ok(())
    }
}

/// Did a tool run that is not safe to repeat?
pub(crate) fn has_acted(definition: &AgentDefinition, events: &[Event]) -> bool {
    events.iter().any(|event| match &event.kind {
        EventKind::ToolRequested(requested) => {
            let mut specs = definition.tools.iter();
            !specs.any(|spec| spec.name == requested.tool && spec.idempotent)
        }
        _ => false,
    })
}
