//! A run as one line of JSON.

use std::collections::BTreeMap;

use backstop_event_log::RunSummary;
use layer0::id::{RunId, SessionId};
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, Timestamp};
use serde::Serialize;

/// A run, for one line of JSON.
#[derive(Serialize)]
pub(super) struct RunLine<'a> {
    run: &'a RunId,
    session: &'a SessionId,
    agent: &'a str,
    state: &'a str,
    outcome: Option<Outcome>,
    reason: Option<&'a Code>,
    started_at: Timestamp,
    finished_at: Option<Timestamp>,
    usage: Usage,
    labels: &'a BTreeMap<String, String>,
}

impl<'a> RunLine<'a> {
    pub(super) fn new(run: &'a RunSummary, state: &'a str) -> Self {
        Self {
            run: &run.run,
            session: &run.session,
            agent: &run.agent,
            state,
            outcome: run.outcome,
            reason: run.reason.as_ref(),
            started_at: run.started_at,
            finished_at: run.finished_at,
            usage: run.usage,
            labels: &run.labels,
        }
    }
}
