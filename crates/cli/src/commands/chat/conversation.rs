//! The state of a conversation between its turns.

use std::path::PathBuf;

use crate::store::AnyDatabase;
use backstop_event_log::{RunFilter, RunState, RunSummary, read_events};
use backstop_react::{Agent, Budget, History, said_before, said_until};
use layer0::event::EventKind;
use layer0::id::{RunId, SessionId};
use layer0::message::{Message, Transcript};

use crate::exit::CliError;
use crate::output::{self, format_count, note};
use crate::signals::ChatTurns;

/// Number of earlier inputs in the history of the line editor.
const EARLIER: u32 = 100;

pub(super) struct ChatSession {
    pub(super) agent: Agent,
    pub(super) budget: Budget,
    pub(super) database: AnyDatabase,
    /// Whether the store outlives the command.
    pub(super) is_kept: bool,
    /// Flag that makes another command use the same store.
    pub(super) store_flag: String,
    /// The agent file.
    pub(super) path: PathBuf,
    /// The session; `None` until the first turn of a new one.
    pub(super) session: Option<SessionId>,
    /// Runs of the turns of this process.
    pub(super) taken: Vec<RunId>,
    /// History of earlier messages, for a new session.
    pub(super) said: Option<History>,
    pub(super) turns: ChatTurns,
}

impl ChatSession {
    /// Returns the earlier inputs of the session, oldest first.
    pub(super) async fn earlier(&self) -> Result<Vec<String>, CliError> {
        let mut inputs = Vec::new();
        for run in self.runs(EARLIER).await?.iter().rev() {
            // An unreadable run is left out of the history.
            let Ok((_, events)) = read_events(&*self.database.log(), &run.run).await else {
                continue;
            };
            if let Some(EventKind::RunStarted(started)) = events.first().map(|it| &it.kind) {
                inputs.push(started.input.to_string());
            }
        }
        Ok(inputs)
    }

    /// Returns the turns of the session, newest first.
    pub(super) async fn runs(&self, limit: u32) -> Result<Vec<RunSummary>, CliError> {
        let Some(session) = &self.session else { return Ok(Vec::new()) };
        let filter = RunFilter::new().session(session.clone()).roots().limit(limit);
        Ok(self.database.log().runs(filter).await?)
    }

    /// Prints a note on the session.
    pub(super) async fn greet(&self) -> Result<(), CliError> {
        let Some(session) = &self.session else { return Ok(()) };
        let turns = self.runs(u32::MAX).await?.len();
        note(&match u64::try_from(turns) {
            Ok(0) => format!("session {session} is new: it has no turn yet"),
            turns => {
                format!("session {session} has {}", format_count(turns.unwrap_or(u64::MAX), "turn"))
            }
        });
        Ok(())
    }

    /// Resumes a turn that was interrupted, or that waits for a person or a time. Returns `false` if there is none.
    pub(super) async fn go_on(&mut self) -> Result<bool, CliError> {
        let Some(last) = self.runs(1).await?.into_iter().next() else { return Ok(false) };
        match last.state {
            RunState::Running => note("the last turn was interrupted; going on with it"),
            RunState::WaitingApproval => note("the last turn waits for a person; going on with it"),
            RunState::Parked => note("the last turn waits for a time; going on with it"),
            _ => return Ok(false),
        }
        self.resume(last.run).await.map(|()| true)
    }

    /// Leaves the session unchanged, and continues from its end in another one.
    pub(super) async fn fork(&mut self) -> Result<(), CliError> {
        let Some(last) = self.last_ended().await? else { return Ok(()) };
        self.said = Some(said_until(&*self.database.log(), &last.run).await?);
        self.leave();
        note("going on in a session of its own, which the next turn begins");
        Ok(())
    }

    /// Leaves the session unchanged, and continues from before its last turn in another one; from before one more turn
    /// if the new session has no turn yet. Returns the input of the undone turn.
    pub(super) async fn undo(&mut self) -> Result<Option<String>, CliError> {
        if let (None, Some(said)) = (&self.session, &self.said) {
            let (before, asked) = without_last_turn(said);
            self.said = Some(before);
            note(match asked {
                Some(_) => "one more turn is taken back",
                None => "there is no turn before",
            });
            return Ok(asked);
        }
        let Some(last) = self.last_ended().await? else { return Ok(None) };
        let asked = self.earlier().await?.pop();
        self.said = Some(said_before(&*self.database.log(), &last.run).await?);
        self.leave();
        note("the last turn is taken back: going on from before it in a session of its own");
        Ok(asked)
    }

    async fn last_ended(&self) -> Result<Option<RunSummary>, CliError> {
        match self.runs(1).await?.into_iter().next() {
            Some(last) if last.is_open() => {
                Err(CliError::usage(format!("run `{}` is open", last.run))
                    .with_hint("`/resume` goes on with it"))
            }
            None => {
                note("there is no turn yet");
                Ok(None)
            }
            last => Ok(last),
        }
    }

    fn leave(&mut self) {
        if let Some(session) = self.session.take() {
            note(&format!("session {session} stays as it is"));
        }
    }

    /// Prints the command that continues the conversation.
    pub(super) fn farewell(&self) {
        if let (Some(session), true) = (&self.session, self.is_kept) {
            let agent = self.path.to_string_lossy();
            let (agent, id) =
                (output::quote_for_shell(&agent), output::quote_for_shell(session.as_str()));
            note("go on later:");
            let rest = format!("chat {agent} --session {id}{}", self.store_flag);
            note(&format!("  {}", output::command(&rest)));
        }
    }
}

/// Splits off the last input and all messages after it; returns the earlier messages and the input.
fn without_last_turn(said: &History) -> (History, Option<String>) {
    let messages = said.messages();
    let asked = messages.iter().enumerate().rev().find_map(|(at, message)| match &**message {
        Message::User { content, .. } => Some((at, content.to_string())),
        _ => None,
    });
    let (at, asked) = asked.unzip();
    let before: Transcript = messages.iter().take(at.unwrap_or(0)).cloned().collect();
    (History::from(before).with_sessions(said.sessions()), asked)
}
