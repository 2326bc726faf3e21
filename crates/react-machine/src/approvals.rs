//! Calls that a person has to agree to.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::event::{
    Actor, ApprovalDenied, ApprovalGranted, ApprovalRequested, RunWaiting, ToolFailure,
    ToolResponded,
};
use layer0::id::{ApprovalId, CallId, RunId};
use layer0::message::ToolCall;
use layer0::{Code, Timestamp, code};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::batch::{Batch, Call, CallState};
use crate::io::{Approval, Effect, Misuse, ToolBatch};
use crate::machine::{Machine, Phase};

/// How many characters of a person's words the model reads.
const MAX_REASON: usize = 500;

/// What people have decided in a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Approvals {
    /// Whose questions these are.
    pub(crate) run: Option<RunId>,
    /// The text of the answer, by tool and hash of the arguments.
    denied: BTreeMap<(Arc<str>, Arc<str>), Denial>,
    /// Since when the run does nothing but wait.
    waiting_since: Option<Timestamp>,
}

/// What a person said against a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Who.
    pub by: Arc<str>,
    /// Why, in their words.
    pub reason: Arc<str>,
}

impl Denial {
    fn text(&self) -> String {
        if self.reason.is_empty() {
            return format!("Denied by {}", self.by);
        }
        let reason: String = self.reason.chars().take(MAX_REASON).collect();
        format!("Denied by {}: {reason}", self.by)
    }
}

impl Approvals {
    /// Returns an id that only this question has, in whichever run: `apr_` and 16 hex digits of
    /// SHA-256.
    fn id(&self, seq: u64, call_id: &CallId) -> ApprovalId {
        let digest = Sha256::new_with_prefix(self.run.as_ref().map_or("", RunId::as_str))
            .chain_update(seq.to_be_bytes());
        let digest = digest.chain_update(call_id.as_str()).finalize();
        ApprovalId::new(format!("apr_{}", hex(&digest[..8])))
    }

    pub(crate) const fn waiting_since(&self) -> Option<Timestamp> {
        self.waiting_since
    }

    pub(crate) fn stop_waiting(&mut self) -> Option<Timestamp> {
        self.waiting_since.take()
    }
}

impl Machine {
    /// Keeps an admitted call until a person agrees to it with these arguments.
    ///
    /// # Errors
    ///
    /// [`Misuse`], when no such call waits to be admitted; then nothing has changed.
    pub fn hold(
        &mut self,
        at: Timestamp,
        call_id: &CallId,
        arguments: Arc<Value>,
    ) -> Result<(), Misuse> {
        let Phase::Working(batch) = &self.phase else {
            let state = self.phase.name();
            return Err(Misuse::Unexpected { event: "approval.requested", state });
        };
        let (tool, cause) = batch.check_hold(call_id)?;
        self.advance(at);
        let id = self.approvals.id(self.events() + 1, call_id);
        let approval = Approval {
            id,
            call_id: call_id.clone(),
            tool,
            arguments_hash: arguments_hash(&arguments),
            arguments,
        };
        let requested = ApprovalRequested {
            approval_id: approval.id.clone(),
            call_id: approval.call_id.clone(),
            tool: Arc::clone(&approval.tool),
            arguments: Arc::clone(&approval.arguments),
            arguments_hash: Arc::clone(&approval.arguments_hash),
        };
        let seq = self.append(Actor::Machine, Some(cause), requested);
        if let Phase::Working(batch) = &mut self.phase {
            batch.hold(seq, approval.clone());
        }
        self.perform(Effect::AskApproval(approval));
        self.wait_if_idle(seq);
        Ok(())
    }

    /// Returns what people said against this very call, if they denied it in this run.
    #[must_use]
    pub fn denied(&self, tool: &str, arguments: &Value) -> Option<&Denial> {
        if self.approvals.denied.is_empty() {
            return None;
        }
        self.approvals.denied.get(&(tool.into(), arguments_hash(arguments)))
    }

    /// Does the run wait for people, with nothing else to do?
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.approvals.waiting_since().is_some()
    }

    /// Returns the questions that are open.
    pub fn open_approvals(&self) -> impl Iterator<Item = &Approval> {
        let batch = match &self.phase {
            Phase::Working(batch) => Some(batch),
            _ => None,
        };
        batch.into_iter().flat_map(|batch| batch.held())
    }

    pub(crate) fn check_approval(&self, id: &ApprovalId, call_id: &CallId) -> Result<(), Misuse> {
        match self.open_approvals().any(|open| open.id == *id && open.call_id == *call_id) {
            true => Ok(()),
            false => Err(Misuse::UnknownApproval(id.clone())),
        }
    }

    pub(crate) fn approval_granted(&mut self, granted: ApprovalGranted) {
        self.resume_clock();
        let Phase::Working(batch) = &mut self.phase else { return };
        let Some((approval, requested)) = batch.take_question(&granted.approval_id) else { return };
        let seq = self.append(Actor::Person, Some(requested), granted);
        if let Phase::Working(batch) = &mut self.phase {
            batch.decided(&approval.call_id, seq);
        }
        let call =
            ToolCall { id: approval.call_id, name: approval.tool, arguments: approval.arguments };
        let max_executions = self.executions_left();
        let calls = Arc::from([call]);
        self.perform(Effect::AdmitTools(ToolBatch { calls, max_executions, approved: true }));
    }

    pub(crate) fn approval_denied(&mut self, denied: ApprovalDenied) {
        self.resume_clock();
        let Phase::Working(batch) = &mut self.phase else { return };
        let Some((approval, requested)) = batch.take_question(&denied.approval_id) else { return };
        let denial = Denial {
            by: Arc::clone(&denied.by),
            reason: denied.message.clone().unwrap_or_default(),
        };
        let seq = self.append(Actor::Person, Some(requested), denied);
        let text = denial.text();
        let key = (Arc::clone(&approval.tool), Arc::clone(&approval.arguments_hash));
        self.approvals.denied.insert(key, denial);
        // The same call, asked about twice, is denied with it.
        let same = |other: &&Approval| {
            other.tool == approval.tool && other.arguments_hash == approval.arguments_hash
        };
        let others: Vec<Approval> = self.open_approvals().filter(same).cloned().collect();
        if let Phase::Working(batch) = &mut self.phase {
            others.iter().for_each(|other| drop(batch.take_question(&other.id)));
        }
        for approval in std::iter::once(approval).chain(others) {
            self.answer_denied(seq, approval, &text);
        }
    }

    fn answer_denied(&mut self, cause: u64, approval: Approval, text: &str) {
        let responded = ToolResponded {
            call_id: approval.call_id,
            tool: approval.tool,
            ok: false,
            output: json!({ "error": text }),
            duration_ms: 0,
            error: Some(ToolFailure {
                reason: Code::new(code::TOOL_APPROVAL_DENIED),
                code: None,
                message: text.into(),
                error_id: None,
            }),
        };
        self.answer_call(Actor::Machine, Some(cause), responded);
    }

    /// Says that the run waits, once nothing but people's answers is missing.
    pub(crate) fn wait_if_idle(&mut self, cause: u64) {
        let Phase::Working(batch) = &self.phase else { return };
        if !batch.is_idle() || self.is_waiting() {
            return;
        }
        let approvals = batch.held().map(|approval| approval.id.clone()).collect();
        self.append(Actor::Machine, Some(cause), RunWaiting { approvals });
        self.approvals.waiting_since = Some(self.now());
    }
}

impl Batch {
    /// Returns tool and cause of a call that waits to be admitted.
    pub(crate) fn check_hold(&self, id: &CallId) -> Result<(Arc<str>, u64), Misuse> {
        let call = self.find(id)?;
        match call.state {
            CallState::Asked => Ok((Arc::clone(&call.tool), self.responded)),
            CallState::Answered { .. } => Err(Misuse::AlreadyAnswered(id.clone())),
            CallState::Held { .. } | CallState::Decided { .. } | CallState::Open { .. } => {
                Err(Misuse::Unexpected {
                    event: "approval.requested",
                    state: "it was asked before",
                })
            }
        }
    }

    pub(crate) fn hold(&mut self, requested: u64, approval: Approval) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == approval.call_id) {
            call.state = CallState::Held { approval, requested };
        }
    }

    /// Takes the question from a call, whose seq comes with it.
    pub(crate) fn take_question(&mut self, id: &ApprovalId) -> Option<(Approval, u64)> {
        self.calls.iter_mut().find_map(|call| {
            let CallState::Held { approval, requested } = &call.state else { return None };
            if approval.id != *id {
                return None;
            }
            let decided = (approval.clone(), *requested);
            call.state = CallState::Decided { approval: decided.0.clone(), requested: decided.1 };
            Some(decided)
        })
    }

    /// What comes of a call that was agreed to is caused by that.
    pub(crate) fn decided(&mut self, id: &CallId, seq: u64) {
        let call = self.calls.iter_mut().find(|call| call.id == *id);
        if let Some(Call { state: CallState::Decided { requested, .. }, .. }) = call {
            *requested = seq;
        }
    }

    /// Admits again what people were asked about: their answers were for another run.
    pub(crate) fn ask_anew(&mut self) {
        for call in &mut self.calls {
            if matches!(call.state, CallState::Held { .. } | CallState::Decided { .. }) {
                call.state = CallState::Asked;
            }
        }
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = &Approval> {
        self.calls.iter().filter_map(|call| match &call.state {
            CallState::Held { approval, .. } => Some(approval),
            _ => None,
        })
    }
}

/// Returns what an approval is bound to: SHA-256, in hex, of the arguments as compact JSON with
/// sorted keys.
fn arguments_hash(arguments: &Value) -> Arc<str> {
    let mut sorted = arguments.clone();
    sorted.sort_all_objects();
    hex(&Sha256::digest(sorted.to_string().as_bytes())).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
