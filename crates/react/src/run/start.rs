//! The start of a run: its claim, and its place in its session.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_clock::RunClock;
use backstop_event_log::{LogError, RunWriter};
use backstop_orchestrator::{new_run_id, new_session_id};
use backstop_react_machine::{CheckedDefinition, Machine, Setup};
use backstop_tool::Schema;
use layer0::event::{EventKind, Follows, RunStarted, Warning};
use layer0::failure::{Effect, Failure};
use layer0::id::{RunId, SessionId};
use layer0::message::Transcript;
use layer0::name::{MAX_NAME_CHARS, check_session};
use layer0::usage::Usage;
use layer0::{JsonText, read_value};
use serde_json::Value;
use tracing::Instrument;

use super::{Run, RunParts, listed};
use crate::agent::inner::AgentInner;
use crate::effect::Effects;
use crate::error::{AgentError, RunFailure};
use crate::feed::StreamFeed;
use crate::history::RequestError;
use crate::hook::HookContext;
use crate::journal::AnyJournal;
use crate::label::LabelError;
use crate::local_journal::LocalJournal;
use crate::outcome::RunOutcome;
use crate::output_check::output_check;
use crate::place::DispatchContext;
use crate::record::digest::Resolved;
use crate::record::recordable::recordable_messages;
use crate::record::transcript::{Earlier, history};
use crate::request::RunRequest;

/// Maximum length of a run's id.
const MAX_RUN_ID_BYTES: usize = 256;

/// Number of times that a run joins its session again after another run began first.
const MAX_JOINS: u32 = 64;

/// A run that is about to begin.
pub(crate) struct StartingRun {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(super) agent: Arc<AgentInner>,
    pub(super) request: RunRequest,
    pub(super) definition: CheckedDefinition,
    record: Resolved,
    output_schema: Option<JsonText>,
    /// Feed of the run's stream; `None` without a reader.
    feed: Option<Arc<StreamFeed>>,
}

/// Place of a new run in its session.
#[derive(Clone, Default)]
pub(super) struct InSession {
    pub(super) follows: Option<Follows>,
    /// The run that was dispatched together with this one, and began first.
    pub(super) branch_of: Option<RunId>,
}

impl StartingRun {
    pub(crate) fn new(agent: Arc<AgentInner>, request: RunRequest) -> Self {
        let now = agent.clock.now(); // time of day: the ids contain it.
        Self {
            run: request.run.clone().unwrap_or_else(|| new_run_id(now)),
            session: request.session.clone().unwrap_or_else(|| new_session_id(now)),
            request,
            definition: agent.definition.clone(),
            record: agent.record(),
            output_schema: None,
            agent,
            feed: None,
        }
    }

    /// Sets the feed of the run's stream.
    pub(crate) fn feeding(mut self, feed: Arc<StreamFeed>) -> Self {
        self.feed = Some(feed);
        self
    }

    /// Runs to the end.
    pub(crate) async fn run(mut self: Box<Self>) -> Result<RunOutcome, RunFailure> {
        // Checked before the span, which holds the run id.
        if let Err(error) = self.check_ids() {
            return Err(self.into_failure(error));
        }
        let span = tracing::info_span!("run", run = %self.run, agent = %self.agent.definition.name);
        let begun = self.begin();
        match Box::pin(begun).instrument(span.clone()).await {
            Ok(run) => Box::pin(run.go()).instrument(span).await,
            Err(failure) => Err(failure),
        }
    }

    /// Writes the first event, and reads the session's history.
    async fn begin(mut self: Box<Self>) -> Result<Box<Run>, RunFailure> {
        if let Err(error) = self.check_request() {
            return Err(self.into_failure(error.into()));
        }
        if let Err(error) = self.check_input() {
            return Err(self.into_failure(error));
        }
        let setup = match self.setup() {
            Ok(setup) => setup,
            Err(error) => return Err(self.into_failure(error)),
        };
        let heard = match self.request.reads_session {
            true => match self.hear_session().await {
                Ok(heard) => heard,
                Err(error) => return Err(self.into_failure(error.before_the_start())),
            },
            false => None,
        };
        let mut joins_left = MAX_JOINS;
        let (mut run, follows) = loop {
            let mut place = match self.join_session().await {
                Ok(place) => place,
                Err(error) => return Err(self.into_failure(error.before_the_start())),
            };
            place.follows = place.follows.or_else(|| heard.clone());
            let machine = Machine::new(self.definition.clone(), setup.clone());
            let mut run = self.open(machine).await;
            let started = run.ledger.fact(self.build_run_started(place.clone()));
            match run.ledger.step([started]).await {
                Ok(()) => break (run, place.follows),
                Err(AgentError::Storage(LogError::SessionBusy { run: other, .. }))
                    if joins_left > 0 =>
                {
                    joins_left -= 1;
                    if let Err(error) = self.end_dead_branch(&other).await {
                        return Err(self.into_failure(error.before_the_start()));
                    }
                }
                Err(error) => return Err(run.failure(at_first_append(error))),
            }
        };
        match run.read_history(follows.as_ref().map(|follows| &follows.run)).await {
            Ok(()) => {}
            Err(error) => return Err(run.failure(error)),
        }
        match run.warn_at_start().await {
            Ok(()) => Ok(run),
            Err(error) => Err(run.failure(error)),
        }
    }

    /// Returns a run around a new machine.
    async fn open(&self, machine: Machine) -> Box<Run> {
        let effects = self.effects();
        let writer = match &self.agent.log {
            Some(log) => RunWriter::new(Arc::clone(log), self.run.clone()),
            None => RunWriter::without_log(self.run.clone()),
        };
        let journal = LocalJournal::new(
            writer,
            Arc::clone(&effects),
            RunClock::new(Arc::clone(&self.agent.clock)),
            self.agent.log.as_ref(),
            self.request.cancellation.clone(),
        );
        self.open_on(AnyJournal::Local(Box::new(journal)), effects, machine).await
    }

    pub(super) fn effects(&self) -> Arc<Effects> {
        let context = HookContext { run: self.run.clone(), session: self.session.clone() };
        let trace_parent = self.request.trace_parent.clone();
        let place = DispatchContext { trace_parent, ..self.request.place.clone() };
        Arc::new(Effects::new(Arc::clone(&self.agent), context, self.feed.clone(), place))
    }

    pub(super) async fn open_on(
        &self,
        journal: AnyJournal,
        effects: Arc<Effects>,
        machine: Machine,
    ) -> Box<Run> {
        let run = Run::new(RunParts {
            agent: Arc::clone(&self.agent),
            definition: self.definition.clone(),
            context: HookContext { run: self.run.clone(), session: self.session.clone() },
            machine,
            journal,
            effects,
            feed: self.feed.clone(),
        });
        let mut run = Box::new(run.await);
        run.sessions = std::iter::once(&self.session).chain(&*self.sessions()).cloned().collect();
        run.depth = self.request.depth;
        run.root = self.root();
        run
    }

    pub(super) fn build_run_started(&self, place: InSession) -> RunStarted {
        let input = self.agent.redactor.redact_held(&self.request.input);
        let agent = self.record.agent.clone();
        let mut started = RunStarted::new(input, self.session.clone(), agent);
        started.run = Some(self.run.clone());
        started.images = Arc::clone(&self.request.images);
        started.definition_digest = Some(Arc::clone(&self.record.definition_digest));
        started.root = Some(self.root());
        started.parent = self.request.parent.clone();
        started.follows = place.follows.map(Box::new);
        started.branch_of = place.branch_of;
        started.machine = backstop_react_machine::VERSION;
        started.depth = self.request.depth;
        started.allowance = self.request.allowance.map(Box::new);
        started.deadline = self.request.deadline;
        let max_park = self.request.place.max_park;
        started.max_park_ms = max_park.map(|time| time.as_millis().try_into().unwrap_or(u64::MAX));
        started.cause = self.request.cause.clone().map(Box::new);
        started.output_schema = self.output_schema.clone().map(Box::new);
        started.mcp = listed::collect_listings(&self.agent).map(Box::new);
        started.labels = self.labels();
        started.trace_parent = self.request.trace_parent.clone();
        started.key_id = self.key_id();
        started.row_sealed = self.agent.log.as_ref().is_some_and(|log| log.seals_rows());
        started.history =
            recordable_messages(&self.agent.redactor, self.request.history.messages());
        started.sessions = self.sessions();
        started
    }

    /// Returns the other sessions whose stored errors and results the run may read.
    fn sessions(&self) -> Arc<[SessionId]> {
        let mut sessions: Vec<SessionId> = Vec::new();
        for session in self.request.history.sessions() {
            if *session != self.session && !sessions.contains(session) {
                sessions.push(session.clone());
            }
        }
        sessions.into()
    }

    /// Returns the root of the run's callers, as far as they are known.
    pub(super) fn root(&self) -> RunId {
        let RunRequest { root, parent, .. } = &self.request;
        root.as_ref().or(parent.as_ref()).unwrap_or(&self.run).clone()
    }

    fn labels(&self) -> Arc<BTreeMap<String, String>> {
        let redact = |text: &String| self.agent.redactor.redact_held(text).into_owned();
        let labels = self.request.labels.iter();
        Arc::new(labels.map(|(key, value)| (redact(key), redact(value))).collect())
    }

    /// Returns the id of the key that the record is sealed with.
    fn key_id(&self) -> Option<Arc<str>> {
        Some(self.agent.log.as_ref()?.key()?.id().into())
    }

    /// Prepares the machine of this run, with the output schema of the request or else of the agent.
    fn setup(&mut self) -> Result<Setup, AgentError> {
        let setup = Setup::new(self.run.clone());
        let declared = self.agent.output_schema();
        let Some(schema) = self.request.output_schema.as_ref().or(declared) else {
            return Ok(setup);
        };
        // Its depth is checked before anything recurses into it.
        let misfit = |error| AgentError::InputValidation(format!("output schema: {error}"));
        Schema::new(schema).map_err(misfit)?;
        let schema = JsonText::from(&**schema);
        let check = output_check(&schema).map_err(misfit)?;
        let mut definition = (*self.definition).clone();
        self.output_schema = Some(schema.clone());
        definition.output_schema = Some(schema);
        self.definition = CheckedDefinition::new(definition)
            .map_err(|error| AgentError::Internal(error.into()))?;
        Ok(setup.checking_output(check))
    }

    /// Refuses a request that cannot be run, before anything is changed.
    fn check_request(&self) -> Result<(), RequestError> {
        let RunRequest { session, parent, history, labels, .. } = &self.request;
        LabelError::check_all(labels.iter())?;
        for session in session.iter().chain(history.sessions()) {
            check_session(session.as_str())?;
        }
        // A dispatched run uses its caller's session for stored values.
        if self.agent.log.is_none()
            && parent.is_none()
            && let Some(session) = session
        {
            return Err(RequestError::session_without_log(session.clone()));
        }
        // The approval of a dispatched run fails its call, which the caller reads.
        let has_no_people = self.agent.log.is_none() && self.agent.approver.is_none();
        let mut needing = self.definition.tools.iter().filter(|spec| spec.approval);
        if let Some(spec) = needing.next().filter(|_| has_no_people && parent.is_none()) {
            return Err(RequestError::approval_without_log(Arc::clone(&spec.name)));
        }
        let max = self.definition.budget.max_depth;
        if let Some(max) = max.filter(|max| self.request.depth > *max) {
            return Err(RequestError::TooDeep { depth: self.request.depth, max });
        }
        history.check()
    }

    /// Refuses an input that does not fit the agent's declared schema. A text is checked both as JSON and as a string.
    fn check_input(&self) -> Result<(), AgentError> {
        let Some(schema) = self.agent.input_schema() else { return Ok(()) };
        let misfit = |error| AgentError::InputValidation(format!("input schema: {error}"));
        let schema = Schema::new(schema).map_err(misfit)?;
        let text = Value::String(self.request.input.to_string());
        let Err(error) = schema.check_input(&read_value(&self.request.input).unwrap_or_default())
        else {
            return Ok(());
        };
        schema.check_input(&text).map_err(|_| AgentError::InputValidation(error.to_string()))
    }

    /// Refuses ids that contain a secret: ids are in the record, and a redacted id would name something else.
    fn check_ids(&mut self) -> Result<(), AgentError> {
        let misfit = |what: &str| AgentError::InputValidation(what.to_owned());
        self.request.check_context().map_err(misfit)?;
        let redactor = self.agent.redactor.clone();
        let found = |id: &str| match redactor.redact_held(id) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        };
        let refused = |what| {
            AgentError::InputValidation(format!("the {what} id holds a secret of this process"))
        };
        let ids = [
            ("run", self.request.run.as_ref().map(RunId::as_str)),
            ("parent's", self.request.parent.as_ref().map(RunId::as_str)),
        ];
        for (what, id) in ids {
            if id.is_some_and(|id| id.trim().is_empty()) {
                return Err(AgentError::InputValidation(format!("the {what} id is blank")));
            }
            if id.is_some_and(|id| id.starts_with("sub_")) {
                let why = format!("the {what} id begins with `sub_`, as those of subscriptions do");
                return Err(AgentError::InputValidation(why));
            }
        }
        if self.run.as_str().len() > MAX_RUN_ID_BYTES
            || self.run.as_str().contains(char::is_control)
        {
            let why =
                format!("a run id has at most {MAX_RUN_ID_BYTES} bytes, and no control characters");
            let shown = self.run.as_str().chars().filter(|c| !c.is_control());
            self.run = shown.take(MAX_NAME_CHARS).collect::<String>().into();
            return Err(AgentError::InputValidation(why));
        }
        if let Some(redacted) = found(self.run.as_str()) {
            self.run = redacted.into();
            return Err(refused("run"));
        }
        if let Some(redacted) = found(self.session.as_str()) {
            self.session = redacted.into();
            return Err(refused("session"));
        }
        let mut sessions = self.request.history.sessions().iter();
        if sessions.any(|session| found(session.as_str()).is_some()) {
            return Err(refused("history's session"));
        }
        if self.request.parent.as_ref().is_some_and(|parent| found(parent.as_str()).is_some()) {
            return Err(refused("parent's"));
        }
        let mut labels = self.request.labels.iter().flat_map(|(key, value)| [key, value]);
        match labels.any(|text| found(text).is_some()) {
            true => Err(misfit("a label holds a secret of this process")),
            false => Ok(()),
        }
    }

    fn into_failure(self, error: AgentError) -> RunFailure {
        RunFailure {
            run_id: self.run,
            session: self.session,
            error,
            usage: Usage::default(),
            transcript: Transcript::default(),
            partial: Arc::default(),
            acted: false,
        }
    }
}

/// Converts the error of a run's first append. A log that has certainly written nothing has started no run.
fn at_first_append(error: AgentError) -> AgentError {
    match error {
        AgentError::Storage(error) if error.effect() == Effect::None => {
            AgentError::NotStarted(error.at_start())
        }
        other => other,
    }
}

impl Run {
    /// Reads the messages of the session's earlier runs, and gives them to the machine. It does so after the run's
    /// first event is durable, so that the start costs the same for any length of the session.
    pub(super) async fn read_history(&mut self, follows: Option<&RunId>) -> Result<(), AgentError> {
        let (Some(log), Some(follows)) = (self.agent.log.clone(), follows) else { return Ok(()) };
        let cache = Some(&self.agent.transcripts);
        let Earlier { messages, sessions, unreadable } = history(&*log, Some(follows), cache).await;
        self.ledger.provide_earlier(messages);
        let earlier = sessions.into_iter().filter(|session| !self.sessions.contains(session));
        self.sessions = self.sessions.iter().cloned().chain(earlier).collect();
        if let Some(message) = unreadable
            && !self.ledger.is_over()
        {
            tracing::warn!(run = %self.context.run, "{message}");
            let warning: EventKind = Warning::new(message).into();
            let warning = self.ledger.fact(warning);
            self.ledger.step([warning]).await?;
        }
        Ok(())
    }
}
