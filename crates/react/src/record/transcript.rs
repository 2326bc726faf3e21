//! What was said in a session before a run, along the runs that each one follows.

use std::sync::Arc;

use backstop_event_log::{EventLog, LogError, RunSummary, read_events, sessions_of};
use backstop_react_machine::messages_of;
use layer0::event::Event;
use layer0::failure::Chain;
use layer0::id::{RunId, SessionId};
use layer0::message::Message;

use crate::record::fold::started;

/// What a session came to until the end of a run.
#[derive(Default)]
pub(crate) struct Earlier {
    /// The messages, oldest first, without what only instructs.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Where what its runs stored is found.
    pub(crate) sessions: Vec<SessionId>,
    /// What could not be read, for people.
    pub(crate) unreadable: Option<String>,
}

/// Reads a session up to the end of a run. It is never refused: what cannot be read, and what stands
/// before it, is left out.
pub(crate) async fn history(log: &dyn EventLog, until: Option<&RunId>) -> Earlier {
    let mut history = Earlier::default();
    let (runs, unreadable) = followed(log, until).await;
    for (_, events) in runs.iter().rev() {
        history.messages.extend(messages_of(events.iter().map(|event| &event.kind)));
        for session in sessions_of(events) {
            if !history.sessions.contains(&session) {
                history.sessions.push(session);
            }
        }
    }
    history.unreadable = unreadable
        .map(|error| format!("earlier messages of the session cannot be read: {}", Chain(&error)));
    history
}

/// Reads a run, the one that it follows, and so on, until one cannot be read.
pub(crate) async fn followed(
    log: &dyn EventLog,
    last: Option<&RunId>,
) -> (Vec<(RunSummary, Vec<Event>)>, Option<LogError>) {
    let mut runs: Vec<(RunSummary, Vec<Event>)> = Vec::new();
    let mut next = last.cloned();
    while let Some(run) = next {
        if runs.iter().any(|(summary, _)| summary.run == run) {
            let circle = LogError::tampered(1, "the runs of its session go in circles");
            return (runs, Some(circle));
        }
        let read = match read_events(log, &run).await {
            Ok((summary, events)) => started(&events)
                .map(|started| started.follows.as_ref().map(|follows| follows.run.clone()))
                .map(|follows| (follows, (summary, events))),
            Err(error) => Err(error),
        };
        match read {
            Ok((follows, read)) => {
                next = follows;
                runs.push(read);
            }
            Err(error) => return (runs, Some(error)),
        }
    }
    (runs, None)
}
