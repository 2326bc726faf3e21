//! The approver at the terminal.

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_react::{ApprovalRequest, Approver, DecideError, Decision};
use layer0::failure::{Chain, Failure};
use tokio::sync::Mutex;

use crate::limits::limits;
use crate::output::{self, DataForm, Prompt, PromptAnswer};

/// An approver that asks the person at the terminal, one approval after the other.
///
/// A prompt whose approval needs no decision any more, because it was decided elsewhere or its run was stopped, is
/// removed from the screen.
pub(crate) struct TerminalApprover {
    by: String,
    asking: Mutex<()>,
}

impl TerminalApprover {
    /// Returns the approver; `None` without a terminal, because input from a pipe decides nothing.
    pub(crate) fn at_terminal() -> Option<Self> {
        output::at_terminal().then(|| Self { by: user(), asking: Mutex::default() })
    }
}

#[async_trait]
impl Approver for TerminalApprover {
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision> {
        let _turn = self.asking.lock().await;
        let approval = &request.approval;
        // A decision of this person would be refused. The report of the run prints the commands for others.
        if !approval.approvers.allow(&self.by) {
            return None;
        }
        let limits = limits(approval.expires_at, &approval.approvers, SystemClock.now());
        // The whole call, because the decision is bound to it.
        let call = output::call(&approval.tool, &approval.arguments, output::width_of_notes());
        let form = approval.schema.as_ref().map(DataForm::from_schema);
        let prompt = match &approval.message {
            Some(message) => Prompt::to_answer(&approval.tool, message),
            None => Prompt::to_decide(&call, limits.as_deref()),
        };
        match prompt.with_form(form).ask().await? {
            PromptAnswer::Given(data) => Some(Decision::approve(self.by.as_str()).with_data(data)),
            PromptAnswer::Later => None,
            PromptAnswer::No(reason) => Some(Decision::deny(self.by.as_str(), reason)),
            PromptAnswer::Yes => Some(Decision::approve(self.by.as_str())),
        }
    }

    async fn receive_refusal(&self, _: &ApprovalRequest, why: &DecideError) {
        let hint = why.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        output::note(&format!("this was not accepted: {}{hint}", Chain(why)));
    }
}

/// Returns the name of the user at the terminal.
pub(crate) fn user() -> String {
    ["USER", "LOGNAME", "USERNAME"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .chain(whoami::username())
        .find(|name| !name.trim().is_empty())
        .unwrap_or_else(|| "terminal".to_owned())
}
