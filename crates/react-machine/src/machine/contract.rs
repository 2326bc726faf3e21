//! Contracts of tools, which determine the effects of calls besides their arguments, when a run adopts another
//! definition.

use layer0::{JsonText, ToolSpec};
use serde_json::Value;

use super::MachineState;
use crate::definition::AgentDefinition;
use crate::io::{Approval, ToolContract};
use crate::phase::RunPhase;
use crate::phase::batch::{CallBatch, HeldCall};

/// Key of the walls in the contract of a program.
const WALLS: &str = "walls";
/// Key of the servers, by name, in an agent's contract.
const SERVERS: &str = "servers";

impl AgentDefinition {
    /// Returns the tool or server whose walls another definition of the agent removes; `None` if all walls remain.
    #[must_use]
    pub fn walls_lost_in(&self, other: &Self) -> Option<String> {
        let tool = self.tools.iter().find(|tool| {
            let same = other.tools.iter().find(|other| other.name == tool.name);
            is_walled(tool) && same.is_some_and(|same| !is_walled(same))
        });
        if let Some(tool) = tool {
            return Some(format!("tool `{}`", tool.name));
        }
        let [old, new] = [self, other].map(|it| it.contract.as_ref().map(JsonText::value));
        let servers = old.as_ref()?.get(SERVERS)?.as_object()?;
        let new = new.as_ref().and_then(|new| new.get(SERVERS)).unwrap_or(&Value::Null);
        let is_open = |name: &str| new.get(name).is_some_and(|server| !has_walls(server));
        let lost = servers.iter().find(|(name, server)| has_walls(server) && is_open(name));
        lost.map(|(name, _)| format!("MCP server `{name}`"))
    }

    fn contract_of_tool(&self, name: &str) -> ToolContract {
        let tool = self.tools.iter().find(|tool| *tool.name == *name);
        let is_elsewhere = tool.is_some_and(|tool| tool.origin.is_some());
        ToolContract {
            of_tool: tool.and_then(|tool| tool.contract.clone()),
            of_agent: self.contract.clone().filter(|_| is_elsewhere),
        }
    }
}

fn is_walled(tool: &ToolSpec) -> bool {
    tool.contract.as_ref().is_some_and(|contract| has_walls(&contract.value()))
}

fn has_walls(contract: &Value) -> bool {
    contract.get(WALLS).is_some_and(|walls| !walls.is_null())
}

impl MachineState {
    /// Returns the current contract of a tool.
    pub(super) fn contract(&self, tool: &str) -> ToolContract {
        self.definition.contract_of_tool(tool)
    }

    /// Returns whether the contract has changed since the approval was shown.
    pub(super) fn has_another_contract(&self, approval: &Approval) -> bool {
        approval.contract != self.contract(&approval.tool)
    }

    /// Asks again about a call that people approved before its tool had another contract.
    pub(super) fn ask_about_contract(&mut self, batch: &mut CallBatch, held: &HeldCall) {
        batch.unask(held.place);
        let calls = self.conversation.last_calls().iter();
        let calls = calls.filter(|call| call.id == held.approval.call_id).cloned().collect();
        self.admit(calls);
    }

    /// Withdraws the approvals of calls that have not begun and whose tool now has another contract.
    pub(super) fn take_approvals_back(&self, phase: &mut RunPhase) {
        if let RunPhase::Working(batch) = phase {
            batch.unask_decided(|approval| self.has_another_contract(approval));
        }
    }
}
