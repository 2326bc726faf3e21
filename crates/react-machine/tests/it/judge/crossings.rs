//! Features that meet in a history.

use std::collections::BTreeSet;

use layer0::event::EventKind;

use super::history::Happening;

/// The crossings that the generators have to reach.
pub(crate) const ALL: &[&str] = &[
    "answer of a settled call",
    "approval expired",
    "approval meets a used-up budget",
    "batch asks the caller for budget",
    "call asks a person at the end",
    "cancel while waiting",
    "crash loop",
    "crash while waiting",
    "dropped dispatch",
    "guard: loop",
    "guard: parallel tools",
    "guard: stagnation",
    "guard: iterations",
    "hook stops after a tool",
    "input before an end",
    "late settlement",
    "model call asks the caller for budget",
    "nothing left of the caller",
    "parked run is given up",
    "parked run resumes",
    "probe",
    "reopened after a budget",
    "rerun",
    "settlement and deadline",
    "settlement without a process",
    "signal that says cancel",
    "waits for runs below",
];

/// Returns the crossings of a history.
pub(crate) fn crossings(history: &[Happening]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let events: Vec<&EventKind> = history
        .iter()
        .filter_map(|it| match it {
            Happening::Event { kind, .. } => Some(kind),
            _ => None,
        })
        .collect();
    for (place, event) in events.iter().enumerate() {
        let begin = events[..place].iter().rposition(|it| is_end(it)).map_or(0, |end| end + 1);
        found.extend(crossing(event, &events[begin..place], &events[place + 1..]));
    }
    found
}

fn is_end(event: &EventKind) -> bool {
    matches!(event, EventKind::RunFinished(_) | EventKind::RunFailed(_))
}

fn is_cancel(event: &EventKind) -> bool {
    matches!(event, EventKind::SignalReceived(it) if &*it.name == "cancel")
}

/// Returns what an event crosses, after those of its episode and before all others.
fn crossing(
    event: &EventKind,
    before: &[&EventKind],
    after: &[&EventKind],
) -> Option<&'static str> {
    let last = before.iter().rev().find(|it| !matches!(it, EventKind::Warning(_)));
    let waits = matches!(last, Some(EventKind::RunWaiting(_)));
    let dispatched = || {
        let count = |kind: fn(&EventKind) -> bool| before.iter().filter(|it| kind(it)).count();
        count(|it| matches!(it, EventKind::OperatorDispatched(_)))
            > count(|it| matches!(it, EventKind::OperatorReturned(_)))
    };
    let settled = before.iter().any(|it| matches!(it, EventKind::ToolResolved(_)));
    let parked = before
        .iter()
        .rev()
        .take_while(|it| !matches!(it, EventKind::ModelRequested(_)))
        .any(|it| matches!(it, EventKind::RunParked(_)));
    Some(match event {
        EventKind::ApprovalDenied(it) if it.reason.as_str() == "approval.expired" => {
            "approval expired"
        }
        EventKind::ApprovalDenied(it) if it.reason.as_str() == "tool.cancelled" => {
            "call asks a person at the end"
        }
        EventKind::BudgetExhausted(it) if &*it.dimension == "wall_time" && settled => {
            "settlement and deadline"
        }
        EventKind::BudgetExhausted(it)
            if &*it.dimension == "tool_calls"
                && before.iter().any(|it| matches!(it, EventKind::ApprovalGranted(_))) =>
        {
            "approval meets a used-up budget"
        }
        EventKind::BudgetGranted(it) if it.run.as_str() == "run_1" && it.allowance.is_none() => {
            "nothing left of the caller"
        }
        EventKind::GuardTripped(it) => match it.reason.as_str() {
            "guard.loop_detected" => "guard: loop",
            "guard.parallel_tool_limit" => "guard: parallel tools",
            "guard.stagnation" => "guard: stagnation",
            _ => "guard: iterations",
        },
        EventKind::HookFailed(it) if &*it.point == "after_tool" => "hook stops after a tool",
        EventKind::RunFailed(it) if it.reason.as_str() == "run.crash_loop" => "crash loop",
        EventKind::RunRecovered(_) if matches!(last, Some(EventKind::ToolResolved(_))) => {
            "settlement without a process"
        }
        EventKind::RunRecovered(it) if !it.probing.is_empty() => "probe",
        EventKind::RunRecovered(it) if !it.rerun.is_empty() => "rerun",
        EventKind::RunReopened(it)
            if it.reason.as_ref().is_some_and(|it| it.as_str().starts_with("budget.")) =>
        {
            "reopened after a budget"
        }
        EventKind::RunResumed(_) if parked => match after.first() {
            Some(EventKind::ModelRequested(_)) => "parked run resumes",
            _ => "crash while waiting",
        },
        EventKind::RunResumed(_) if waits => "crash while waiting",
        EventKind::RunWaiting(it) if it.r#for.as_str() == "budget" => match last {
            Some(EventKind::ModelResponded(_)) => "batch asks the caller for budget",
            _ => "model call asks the caller for budget",
        },
        EventKind::RunWaiting(_) if matches!(last, Some(EventKind::OperatorWaiting(_))) => {
            "waits for runs below"
        }
        EventKind::SignalReceived(it) if &*it.name == "input" && it.data == "cancel" => {
            "signal that says cancel"
        }
        EventKind::SignalReceived(it) if &*it.name == "input" => {
            let end = after.iter().position(|it| is_end(it))?;
            let asked = after.iter().position(|it| matches!(it, EventKind::ModelRequested(_)))?;
            (end < asked).then_some("input before an end")?
        }
        _ if is_cancel(event) && parked => "parked run is given up",
        _ if is_cancel(event) && waits => "cancel while waiting",
        _ if is_cancel(event) && dispatched() => "dropped dispatch",
        EventKind::ToolResolved(_) if before.is_empty() => "late settlement",
        EventKind::ToolResponded(it)
            if before
                .iter()
                .any(|e| matches!(e, EventKind::ToolResolved(r) if r.call_id == it.call_id)) =>
        {
            "answer of a settled call"
        }
        _ => return None,
    })
}
