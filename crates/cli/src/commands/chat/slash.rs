//! Slash commands: `/help` and the others.

use backstop_error_store::{ErrorFilter, ErrorRecord};
use backstop_event_log::{RunSummary, one_line};
use backstop_react::add_cost;
use layer0::usage::Usage;

use super::conversation::ChatSession;
use crate::exit::CliError;
use crate::output::{self, format_count, note};

/// Number of rows that a list shows.
const ROWS: u32 = 50;

/// Each command with its description.
const KNOWN: [(&str, &str); 8] = [
    ("/help", "list these commands"),
    ("/runs", "list the turns of this session, newest first"),
    (
        "/undo",
        "go on from before the last turn, in a session of its own; again: from before one more",
    ),
    ("/fork", "go on from here in a session of its own; this one stays as it is"),
    ("/resume", "go on with a turn that waits for a person or a time"),
    ("/errors", "list the errors that tools reported in this session"),
    ("/budget", "show what this session used, and what a turn may use"),
    ("/quit", "leave; so does Ctrl-D"),
];

/// A line that begins with one slash.
pub(super) struct Slash<'a>(&'a str);

/// The step after a command.
pub(super) enum Then {
    Leave,
    Read,
    /// Read a line that begins with this text.
    ReadFrom(String),
}

impl<'a> Slash<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        (line.starts_with('/') && !line.starts_with("//")).then_some(Self(line))
    }

    pub(super) async fn perform(self, conversation: &mut ChatSession) -> Result<Then, CliError> {
        match self.0 {
            "/help" => help()?,
            "/runs" => runs(&conversation.runs(ROWS).await?)?,
            "/undo" => {
                return Ok(match conversation.undo().await? {
                    // The editor takes one line.
                    Some(asked) => Then::ReadFrom(one_line(&asked)),
                    None => Then::Read,
                });
            }
            "/fork" => conversation.fork().await?,
            "/resume" => {
                if !conversation.go_on().await? {
                    note("no turn is open: there is nothing to go on with");
                }
            }
            "/errors" => errors(conversation).await?,
            "/budget" => budget(conversation).await?,
            "/quit" | "/exit" => return Ok(Then::Leave),
            other => {
                let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
                return Err(CliError::usage(format!("no command `{other}`")).with_hint(format!(
                    "known here: {}; a text that begins with a slash is written with two",
                    names.join(", ")
                )));
            }
        }
        Ok(Then::Read)
    }
}

fn help() -> Result<(), CliError> {
    KNOWN.iter().try_for_each(|(name, what)| output::line(&format!("{name:<8}  {what}")))
}

fn runs(runs: &[RunSummary]) -> Result<(), CliError> {
    if runs.is_empty() {
        note("there is no turn yet");
        return Ok(());
    }
    let row = |run: &RunSummary| {
        vec![
            run.run.to_string(),
            run.state.as_str().to_owned(),
            run.outcome.map_or("-", |outcome| outcome.as_str()).to_owned(),
            run.started_at.to_string(),
            run.usage.total_tokens.to_string(),
            run.reason.as_ref().map(ToString::to_string).unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    output::table(&["RUN", "STATE", "OUTCOME", "STARTED", "TOKENS", "REASON"], &rows)
}

async fn errors(conversation: &ChatSession) -> Result<(), CliError> {
    let errors = match &conversation.session {
        Some(session) => {
            let filter = ErrorFilter::new().session(session.clone()).limit(ROWS);
            conversation.database.errors().list(filter).await?
        }
        None => Vec::new(),
    };
    if errors.is_empty() {
        note("no errors");
        return Ok(());
    }
    let row = |error: &ErrorRecord| {
        vec![
            error.id().to_string(),
            error.tool().to_string(),
            error.reason().to_string(),
            error.occurrences().to_string(),
            error.summary().to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = errors.iter().map(row).collect();
    output::table(&["ID", "TOOL", "REASON", "SEEN", "SUMMARY"], &rows)
}

async fn budget(conversation: &ChatSession) -> Result<(), CliError> {
    let runs = conversation.runs(u32::MAX).await?;
    let turns = u64::try_from(runs.len()).unwrap_or(u64::MAX);
    let sum = |of: fn(&Usage) -> u64| runs.iter().map(|run| of(&run.usage)).sum::<u64>();
    let costs = runs.iter().cloned().map(add_cost).map(|run| run.usage.cost_usd);
    let cost = costs.sum::<Option<f64>>().map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    output::line(&format!(
        "this session used: {}, {}, {}, {}{}",
        format_count(turns, "turn"),
        format_count(sum(|usage| usage.model_calls.into()), "model call"),
        format_count(sum(|usage| usage.tool_calls.into()), "tool call"),
        format_count(sum(|usage| usage.total_tokens), "token"),
        if turns == 0 { "" } else { &cost },
    ))?;
    let limits = serde_json::to_value(conversation.budget)
        .map_err(|error| CliError::internal("printing", error))?;
    let limits: Vec<String> = limits
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, limit)| !limit.is_null())
        .map(|(name, limit)| format!("{name} {limit}"))
        .collect();
    output::line(&format!("a turn may use: {}", limits.join(", ")))
}
