//! One turn: a run of the agent.

use backstop_react::{Approval, ResumeError, ResumeRequest, RunFailure, RunOutcome, RunRequest};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::Usage;

use super::conversation::ChatSession;
use crate::commands::run::equip_agent;
use crate::exit::CliError;
use crate::output::style::{BAD, DIM};
use crate::output::{self, alert, format_count, note, notes};
use crate::progress::{self, Results};
use crate::prompt::user;
use crate::recorded::RecordedAgentFile;
use crate::report;

impl ChatSession {
    /// Runs a turn with an input, and shows its progress and result.
    pub(super) async fn take_turn(&mut self, text: &str) -> Result<(), CliError> {
        let mut request = RunRequest::new(text).cancelled_by(self.turns.begin());
        request.session.clone_from(&self.session);
        if let (None, Some(said)) = (&self.session, &self.said) {
            request = request.history(said.clone());
        }
        let stream = self.agent.stream(request);
        if self.session.is_none() {
            note(&format!("session {}", stream.session()));
        }
        let before = self.session.replace(stream.session().clone());
        let seen = progress::show_run(stream, Results::Answer).await;
        self.turns.end();
        let run = match &seen.result {
            Ok(outcome) => &outcome.run_id,
            Err(failure) => &failure.run_id,
        };
        match self.has_begun(run).await {
            true => self.said = None,
            // The next turn uses the same history.
            false => self.session = before,
        }
        self.taken.push(run.clone());
        show(&seen.result, seen.answer.as_deref())
    }

    /// Returns whether a turn has a record. Returns `true` if its record cannot be read.
    async fn has_begun(&self, run: &RunId) -> bool {
        !matches!(self.database.log().summary(run).await, Ok(None))
    }

    /// Resumes an open turn.
    pub(super) async fn resume(&mut self, run: RunId) -> Result<(), CliError> {
        let mut recorded = RecordedAgentFile::read(&*self.database.log(), &run, None, None).await?;
        recorded.fetch_credentials().await?;
        let agent = recorded.served_agent(&self.database).await?;
        let agent = recorded.build(equip_agent(agent, &self.database))?;
        self.taken.push(run.clone());
        let request = ResumeRequest::new(run).by(user()).cancelled_by(self.turns.begin());
        let shown = tokio::spawn(progress::show(agent.subscribe(), Results::Answer));
        let result = agent.resume(request).await;
        drop(agent);
        let answer = shown.await.ok().flatten();
        self.turns.end();
        let result = match result {
            Ok(outcome) => Ok(outcome),
            Err(ResumeError::Run(failure)) => Err(failure.into_inner()),
            Err(error) => return Err(error.into()),
        };
        show(&result, answer.as_deref())
    }
}

/// Prints the end of a turn, as far as the answer does not show it.
fn show(result: &Result<RunOutcome, RunFailure>, answer: Option<&str>) -> Result<(), CliError> {
    let answer = answer.map(str::trim_end);
    match result {
        Err(failure) => {
            let what = format!("{}: {}", failure.code(), report::failure(failure));
            output::alert_styled(BAD, "error: ", &what);
            alert(&format!("  hint: {}", failure.hint()));
            print_usage(&failure.usage);
        }
        Ok(outcome) => {
            if !outcome.output.is_empty() && answer != Some(outcome.output.trim_end()) {
                output::foreign(&outcome.output)?;
            }
            outcome.approvals.iter().for_each(waiting);
            let reason = outcome.stop.reason();
            match outcome.stop.outcome() {
                Outcome::Completed | Outcome::WaitingApproval => {}
                other => {
                    let reason = reason.map(|code| format!(" ({code})")).unwrap_or_default();
                    note(&format!("the turn ended {}{reason}", other.as_str()));
                }
            }
            print_usage(&outcome.usage);
        }
    }
    Ok(())
}

fn waiting(approval: &Approval) {
    let call = output::call(&approval.tool, &approval.arguments, output::width_of_notes());
    notes(&format!("waiting for approval: {} {call}", approval.id));
    if let Some(schema) = &approval.schema {
        let schema = output::call("asks for data:", schema, output::width_of_notes());
        notes(&format!("  {schema}"));
    }
    note("  /resume asks again");
}

fn print_usage(usage: &Usage) {
    let used = format!(
        "{}, {}, {}",
        format_count(usage.model_calls.into(), "model call"),
        format_count(usage.tool_calls.into(), "tool call"),
        format_count(usage.total_tokens, "token")
    );
    output::note_styled(DIM, &used);
}
