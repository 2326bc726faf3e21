//! Inputs that fit nothing.

use backstop_react_machine::*;
use layer0::event::*;
use layer0::id::CallId;
use layer0::usage::Usage;
use serde_json::json;

use crate::world::{World, response, started};

impl World {
    pub(crate) fn wild(&mut self, kind: u8, number: u32) {
        let stale = EffectId::new(0, number);
        let at = self.last();
        let call = self.model.as_ref().map_or(number, |call| call.call);
        let input = match kind {
            0 => MachineInput::fact(at, started()),
            1 => MachineInput::fact(at, response("unknown".into(), true)),
            2 => MachineInput::answer(at, stale, response("c0".into(), true)),
            3 => MachineInput::answer(
                at,
                stale,
                ModelFailed::new(call, "provider.other", vec!["x".into()], 1),
            ),
            4 => MachineInput::fact(
                at,
                GuardTripped::new("guard.stagnation", "stagnation", 1, 1, "forged"),
            ),
            5 => MachineInput::fact(at, ToolRequested::new("c0", "look", json!({}), 99 + number)),
            6 => MachineInput::fact(at, ModelAttempted::new(call, 77 + number, "script")),
            7 => match answered_call(&self.log) {
                Some(id) => MachineInput::fact(at, response(id, true)),
                None => return,
            },
            _ => MachineInput::fact(
                at,
                RunFinished::new(layer0::stop::Outcome::Completed, "forged", Usage::default()),
            ),
        };
        self.refused(input);
    }
}

fn answered_call(log: &[MachineEntry]) -> Option<CallId> {
    log.iter().rev().find_map(|entry| match &entry.kind {
        EventKind::ToolResponded(responded) => Some(responded.call_id.clone()),
        _ => None,
    })
}
