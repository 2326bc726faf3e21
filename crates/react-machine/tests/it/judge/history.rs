//! A history as plain data, and what is counted in it.

use layer0::event::EventKind;
use layer0::id::CallId;
use layer0::usage::BudgetIncrease;

/// One thing that happened to a run, or that its machine did.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a history is short")]
pub(crate) enum Happening {
    /// An entry of the record.
    Event { at: i64, kind: EventKind },
    /// An effect that the machine asks for.
    Effect(Performed),
    /// A process passed the time to the machine.
    Told { at: i64 },
    /// A process reported to the machine that only child runs are in flight, and that they wait.
    WaitsBelow,
    /// The machine has nothing more to do by itself, and reports the state of the run.
    Rest(Status),
    /// The process died: its effects are gone.
    Died,
    /// Whether the run could be reopened with this.
    Reopenable { more: Option<Box<BudgetIncrease>>, allowed: bool },
}

/// The state of a run, as reported by its machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Status {
    pub(crate) is_waiting: bool,
    pub(crate) parked_until: Option<i64>,
    /// In order.
    pub(crate) approvals: Vec<String>,
    /// In order.
    pub(crate) unsettled: Vec<CallId>,
    pub(crate) executions_left: u64,
}

/// An effect, as plain data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Performed {
    Admit { calls: Vec<CallId>, max_executions: u64, approved: bool },
    AskApproval(String),
    AskBudget { given: u32 },
    CallModel { call: u32, attempts_before: u32 },
    Hooks(&'static str),
    Probe(CallId),
    ReadMemory,
    Rerun(CallId),
    Run(CallId),
    WriteMemory,
}

/// The usage of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Used {
    pub(crate) attempts: u64,
    pub(crate) executions: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// B1, B2: every attempt and every execution counts, also lost ones, reruns, and those of runs below.
pub(crate) fn used<'e>(events: impl Iterator<Item = &'e EventKind>) -> Used {
    let mut used = Used::default();
    for event in events {
        match event {
            EventKind::ModelAttempted(attempted) => {
                let tokens = attempted.usage.unwrap_or_default();
                used.attempts += 1;
                used.input_tokens += tokens.input_tokens;
                used.output_tokens += tokens.output_tokens;
            }
            EventKind::ToolRequested(_) | EventKind::ToolAttempted(_) => used.executions += 1,
            EventKind::RunRecovered(recovered) => {
                used.attempts += u64::from(recovered.models);
                used.executions += recovered.rerun.len() as u64;
            }
            EventKind::OperatorReturned(returned) => {
                used.attempts += u64::from(returned.usage.model_attempts);
                used.executions += u64::from(returned.usage.tool_calls);
                used.input_tokens += returned.usage.input_tokens;
                used.output_tokens += returned.usage.output_tokens;
            }
            _ => {}
        }
    }
    used
}

/// Returns how many executions the run itself began.
pub(crate) fn own_executions<'e>(events: impl Iterator<Item = &'e EventKind>) -> u32 {
    let own = events.map(|event| match event {
        EventKind::ToolRequested(_) | EventKind::ToolAttempted(_) => 1,
        EventKind::RunRecovered(recovered) => recovered.rerun.len(),
        _ => 0,
    });
    u32::try_from(own.sum::<usize>()).unwrap()
}

/// Returns the number of the last model call.
pub(crate) fn model_calls<'e>(events: impl Iterator<Item = &'e EventKind>) -> u32 {
    let calls = events.filter_map(|event| match event {
        EventKind::ModelRequested(requested) => Some(requested.call),
        _ => None,
    });
    calls.max().unwrap_or(0)
}

/// B1, O2, D12: the time in which the run was at work. No wait counts, and no time without a process;
/// a settlement does not say whether a process has the run, what follows it does.
pub(crate) fn wall_ms<'e>(
    events: impl Iterator<Item = (i64, &'e EventKind)>,
    told: Option<i64>,
) -> u64 {
    let (mut counted, mut since, mut latest) = (0, 0, 0);
    let (mut waits, mut is_over, mut parked) = (false, false, None);
    for (at, event) in events {
        latest = at.max(latest);
        match event {
            EventKind::RunStarted(_) | EventKind::RunReopened(_) => {
                (since, waits, is_over) = (latest, false, false);
            }
            EventKind::RunRecovered(_) => since = latest,
            EventKind::ToolResolved(_) => {}
            EventKind::RunResumed(_) if !waits => since = latest,
            EventKind::RunResumed(_) if parked.is_some_and(|until| until <= latest) => {
                (since, waits, parked) = (latest, false, None);
            }
            _ if waits && ends_wait(event) => (since, waits, parked) = (latest, false, None),
            _ if waits || is_over => {}
            _ => {
                counted += latest - since;
                since = latest;
            }
        }
        match event {
            EventKind::RunWaiting(_) => waits = true,
            EventKind::RunParked(it) => parked = Some(it.until.as_millis()),
            EventKind::RunFinished(_) | EventKind::RunFailed(_) => is_over = true,
            _ => {}
        }
    }
    if let Some(told) = told.filter(|told| !waits && !is_over && *told > since) {
        counted += told - since;
    }
    u64::try_from(counted).unwrap()
}

/// Returns whether a wait is over with this event.
fn ends_wait(event: &EventKind) -> bool {
    match event {
        EventKind::ApprovalDenied(_)
        | EventKind::ApprovalGranted(_)
        | EventKind::ApprovalRequested(_)
        | EventKind::BudgetExhausted(_)
        | EventKind::BudgetGranted(_)
        | EventKind::HookAborted(_)
        | EventKind::OperatorDispatched(_)
        | EventKind::OperatorReturned(_)
        | EventKind::OperatorWaiting(_)
        | EventKind::RunFailed(_)
        | EventKind::RunFinished(_) => true,
        EventKind::HookFailed(failed) => !failed.fail_open,
        EventKind::SignalReceived(signal) => &*signal.name == "cancel",
        _ => false,
    }
}
