//! Checks which facts fit the state of a call; a fact that does not is refused before anything changes.

use std::sync::Arc;

use layer0::event::{ApprovalGranted, RunRecovered, ToolRequested, ToolResponded};
use layer0::id::{ApprovalId, CallId};

use super::{BatchCall, CallBatch, CallIndex, CallState, HeldCall, Sorted};
use crate::io::{Approval, EffectId, Misuse};

/// State of a call that waits for a person, in errors.
const HELD: &str = "a person has to agree to the call";
/// Error for a fact about a call that names another tool.
const OTHER_TOOL: &str = "the call is of another tool";

impl HeldCall {
    /// Checks that this person may decide it.
    pub(crate) fn check_by(&self, by: &Arc<str>) -> Result<(), Misuse> {
        let Approval { id, approvers, .. } = &self.approval;
        match approvers.allow(by) {
            true => Ok(()),
            false => Err(Misuse::NotApprover { approval: id.clone(), by: Arc::clone(by) }),
        }
    }

    /// Checks that the decision has data exactly if data was requested.
    pub(crate) fn check_data(&self, granted: &ApprovalGranted) -> Result<(), Misuse> {
        let unexpected = |state| Err(Misuse::Unexpected { event: "approval.granted", state });
        match (&self.approval.schema, &granted.data) {
            (Some(_), None) => unexpected("the approval asks for data"),
            (None, Some(_)) => unexpected("the approval asks for no data"),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }

    /// Checks that other arguments are given only if the call does not run yet.
    pub(crate) fn check_arguments(&self, granted: &ApprovalGranted) -> Result<(), Misuse> {
        match self.approval.is_asked_by_call() && granted.arguments.is_some() {
            true => {
                let state = "the call is running with its arguments";
                Err(Misuse::Unexpected { event: "approval.granted", state })
            }
            false => Ok(()),
        }
    }

    /// Checks that it can expire. A request of a running call can at any time, because its tool may no longer need it.
    pub(crate) fn check_expiry(&self) -> Result<(), Misuse> {
        match self.approval.expires_at {
            Some(_) => Ok(()),
            None if self.approval.is_asked_by_call() => Ok(()),
            None => {
                let state = "the approval does not expire";
                Err(Misuse::Unexpected { event: "approval.denied", state })
            }
        }
    }
}

impl CallBatch {
    pub(super) fn find(&self, id: &CallId) -> Result<CallIndex, Misuse> {
        self.look_up(id).map(|(place, _)| place)
    }

    fn look_up(&self, id: &CallId) -> Result<(CallIndex, &BatchCall), Misuse> {
        let found = self.calls.iter().enumerate().find(|(_, call)| call.id == *id);
        let (index, call) = found.ok_or_else(|| Misuse::UnknownCall(id.clone()))?;
        Ok((CallIndex(index), call))
    }

    /// Checks that the call may run.
    pub(crate) fn check_request(
        &self,
        requested: &ToolRequested,
        expected: u32,
    ) -> Result<CallIndex, Misuse> {
        let event = "tool.requested";
        let (place, call) = self.look_up(&requested.call_id)?;
        let unexpected = |state| Err(Misuse::Unexpected { event, state });
        if call.tool != requested.tool {
            return unexpected(OTHER_TOOL);
        }
        let actual = requested.execution;
        match &call.state {
            CallState::Decided { approval, .. } if approval.arguments != requested.arguments => {
                unexpected("a person decided on other arguments")
            }
            CallState::Asked | CallState::Decided { .. } if actual == expected => Ok(place),
            CallState::Asked | CallState::Decided { .. } => {
                Err(Misuse::OutOfOrder { event, actual, expected })
            }
            CallState::Held { .. } => unexpected(HELD),
            CallState::Open { .. } => unexpected("the call is already running"),
            CallState::Answered { .. } => Err(Misuse::AlreadyAnswered(requested.call_id.clone())),
        }
    }

    /// Checks that this is the answer of the call.
    pub(crate) fn check_answer(
        &self,
        answered: Option<EffectId>,
        responded: &ToolResponded,
    ) -> Result<CallIndex, Misuse> {
        let (place, call) = self.look_up(&responded.call_id)?;
        let unexpected = |state| Err(Misuse::Unexpected { event: "tool.responded", state });
        let open = match &call.state {
            CallState::Asked | CallState::Decided { .. } => None,
            CallState::Held { .. } => return unexpected(HELD),
            CallState::Open { effect, .. } => Some(*effect),
            CallState::Answered { .. } => {
                return Err(Misuse::AlreadyAnswered(responded.call_id.clone()));
            }
        };
        if call.tool != responded.tool {
            return unexpected(OTHER_TOOL);
        }
        if call.stored != responded.error.as_ref().and_then(|error| error.error_id.clone()) {
            return unexpected("its error is stored elsewhere, or not at all");
        }
        match answered {
            Some(effect) if open != Some(effect) => {
                Err(Misuse::Stale { epoch: effect.epoch, number: effect.number })
            }
            _ => Ok(place),
        }
    }

    /// Checks that the call is running, so that it can be tried again.
    pub(crate) fn check_running(
        &self,
        event: &'static str,
        id: &CallId,
    ) -> Result<CallIndex, Misuse> {
        match self.look_up(id)? {
            (place, BatchCall { state: CallState::Open { .. }, .. }) => Ok(place),
            _ => Err(Misuse::Unexpected { event, state: "the call is not running" }),
        }
    }

    /// Checks that the call is running, and has no open request to a person.
    pub(crate) fn check_ask(&self, id: &CallId) -> Result<(CallIndex, &Arc<str>), Misuse> {
        let event = "approval.requested";
        let place = self.check_running(event, id)?;
        let call = &self.calls[place.0];
        match call.asking {
            Some(_) => Err(Misuse::Unexpected { event, state: "the call asks already" }),
            None => Ok((place, &call.tool)),
        }
    }

    /// Checks that an error can be stored for the call.
    pub(crate) fn check_store(&self, id: &CallId) -> Result<CallIndex, Misuse> {
        let (place, call) = self.look_up(id)?;
        match (&call.state, &call.stored) {
            (CallState::Answered { .. }, _) => Err(Misuse::AlreadyAnswered(id.clone())),
            (_, Some(_)) => {
                let state = "its error is stored already";
                Err(Misuse::Unexpected { event: "error.stored", state })
            }
            (_, None) => Ok(place),
        }
    }

    /// Checks that the call waits to be admitted.
    pub(crate) fn check_hold(&self, id: &CallId) -> Result<CallIndex, Misuse> {
        let (place, call) = self.look_up(id)?;
        match call.state {
            CallState::Asked => Ok(place),
            CallState::Answered { .. } => Err(Misuse::AlreadyAnswered(id.clone())),
            CallState::Held { .. } | CallState::Decided { .. } | CallState::Open { .. } => {
                let state = "it was asked before";
                Err(Misuse::Unexpected { event: "approval.requested", state })
            }
        }
    }

    /// Checks that this approval is open, for this call.
    pub(crate) fn check_approval(
        &self,
        id: &ApprovalId,
        call: &CallId,
    ) -> Result<HeldCall, Misuse> {
        let found = |place| self.held_at(place).or_else(|| self.asking_at(place));
        let held = self.find(call).ok().and_then(found);
        held.filter(|held| held.approval.id == *id)
            .ok_or_else(|| Misuse::UnknownApproval(id.clone()))
    }

    /// Checks that every running call is sorted, except those that continue and those that a person settled, and no
    /// others. Returns the places of the calls that do not simply run again.
    pub(crate) fn check_recovered(
        &self,
        recovered: &RunRecovered,
        executions_left: u32,
        goes_on: impl Fn(&CallId, &str) -> bool,
    ) -> Result<Sorted, Misuse> {
        let unexpected = |state| Err(Misuse::Unexpected { event: "run.recovered", state });
        let RunRecovered { rerun, interrupted, probing, .. } = recovered;
        let named = || rerun.iter().chain(interrupted).chain(probing);
        if let Some(id) = named().find(|id| !self.is_running(id) || self.is_settled(id)) {
            return Err(Misuse::UnknownCall(id.clone()));
        }
        if rerun.len() > usize::try_from(executions_left).unwrap_or(usize::MAX) {
            return unexpected("fewer executions are left of the budget");
        }
        // Some calls continue, unless they are named.
        let is_named = |id: &CallId| named().any(|named| named == id);
        let is_left_out = |(id, tool): (&CallId, &Arc<str>)| {
            !(is_named(id) || goes_on(id, tool) || self.is_settled(id))
        };
        if self.running().any(is_left_out) {
            return unexpected("other calls are open too");
        }
        let places =
            |ids: &[CallId]| ids.iter().map(|id| self.find(id)).collect::<Result<Vec<_>, _>>();
        Ok(Sorted { interrupted: places(interrupted)?, probing: places(probing)? })
    }
}
