//! Running calls that ask a person, and data that is given with approvals (SPEC A3).

use std::collections::BTreeMap;

use backstop_react_machine::*;
use layer0::JsonText;
use layer0::event::*;
use layer0::id::{ApprovalId, CallId};
use serde_json::json;

use crate::world::World;

/// Returns the data that people give when it is requested.
pub(crate) fn data() -> JsonText {
    json!({ "day": "monday" }).into()
}

impl World {
    /// A call that is running asks a person, if it does not already.
    pub(crate) fn ask_person(&mut self, pick: usize) {
        if self.open.is_empty() {
            return;
        }
        let run = self.open[pick % self.open.len()].clone();
        let at = self.at();
        let mut asked =
            ApprovalRequested::new("apr_other", run.call_id.clone(), "look", json!({}), "0");
        self.refused(MachineInput::fact(at, asked.clone()));
        // Not the next id either.
        asked.message = Some("which day?".into());
        self.refused(MachineInput::fact(at, asked));
        let asks = |machine: &mut Machine, call: &CallId| {
            let message = "which day?".into();
            machine.ask_person(at, call, run.arguments.clone(), message, json!({}).into())
        };
        let before = self.machine.clone();
        asks(&mut self.machine, &"unknown".into()).expect_err("no such call is running");
        let mut open = self.machine.open_approvals();
        let asks_already = open.any(|open| open.call_id == run.call_id);
        drop(open);
        let asked = asks(&mut self.machine, &run.call_id);
        assert_eq!(asked.is_err(), asks_already, "a call asks one thing at a time");
        if asks_already {
            assert_eq!(self.machine, before, "a refused input changes nothing");
        }
        self.drain();
    }

    /// Checks that no call asks anything: what asked is gone with its process.
    pub(crate) fn check_asks_none(&self) {
        assert!(!self.machine.open_approvals().any(Approval::is_asked_by_call));
    }

    /// Checks what holds of approvals after any history.
    pub(crate) fn check_approvals(&self) {
        let mut asked = BTreeMap::<ApprovalId, (CallId, bool, u32)>::new();
        let (mut answered, mut given) = (Vec::new(), BTreeMap::new());
        for entry in &self.log {
            match &entry.kind {
                EventKind::ApprovalRequested(it) => {
                    let of = (it.call_id.clone(), it.message.is_some(), 0);
                    assert!(asked.insert(it.approval_id.clone(), of).is_none(), "ids are unique");
                }
                EventKind::ApprovalGranted(it) => {
                    let (_, by_call, decided) = asked.get_mut(&it.approval_id).expect("asked");
                    *decided += 1;
                    if !*by_call {
                        given.insert(it.call_id.clone(), it.data.clone());
                    }
                }
                EventKind::ApprovalDenied(it) => {
                    asked.get_mut(&it.approval_id).expect("asked").2 += 1;
                }
                EventKind::ToolResponded(it) => answered.push(it.call_id.clone()),
                _ => {}
            }
        }
        for (call, by_call, decided) in asked.values() {
            assert!(*decided <= 1, "an approval is decided once");
            assert!(!*by_call || *decided == 1 || !answered.contains(call), "none is left open");
        }
        let mut open = self.machine.open_approvals().map(|open| &open.call_id);
        assert!(open.all(|call| !answered.contains(call)));
        for run in &self.executions {
            assert_eq!(run.approval_data, given.get(&run.call_id).cloned().flatten());
        }
    }
}
