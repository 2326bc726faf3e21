//! B1, B2: which budget leaves no room.

use super::history::Status;
use super::model::Judge;
use super::rules::Room;

/// A budget that is used up.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedUp {
    pub(super) budget: &'static str,
    pub(super) limit: u64,
    pub(super) used: u64,
}

impl Judge {
    /// D4: returns where the run is.
    pub(super) fn status(&self) -> Status {
        let asked = self.calls.iter().filter_map(|call| call.asks.clone());
        let mut approvals: Vec<_> = self.held().into_iter().chain(asked).collect();
        let running = self.calls.iter().filter(|call| {
            let only_dispatches = self.rules.tool(&call.tool).only_dispatches;
            call.is_running() && call.settled.is_none() && !only_dispatches
        });
        let running = running.map(|call| call.id.clone());
        let mut unsettled: Vec<_> = self.unsettled.keys().cloned().chain(running).collect();
        approvals.sort();
        unsettled.sort();
        Status {
            is_waiting: self.is_waiting,
            parked_until: self.parked_until.filter(|_| self.is_waiting),
            approvals,
            unsettled,
            executions_left: self.executions_left(self.budgets().effective(), true),
        }
    }

    /// Returns how many milliseconds are left of the time budget.
    pub(crate) fn time_left(&self, now: i64) -> Option<u32> {
        let limit = self.budgets().effective().wall_ms?;
        u32::try_from(limit.saturating_sub(self.wall_ms(Some(now)))).ok()
    }

    /// Returns the first budget that leaves no room for an attempt: reached, or only `crossed` once
    /// there is nothing to be asked of a model.
    pub(super) fn exhausted(&self, room: Room, crossed: bool, told: Option<i64>) -> Option<UsedUp> {
        let used = self.used();
        let total = used.input_tokens + used.output_tokens;
        let attempts = [("model_calls", room.attempts.filter(|_| !crossed), used.attempts)];
        let tokens = [
            ("input_tokens", room.input_tokens, used.input_tokens),
            ("output_tokens", room.output_tokens, used.output_tokens),
            ("total_tokens", room.total_tokens, total),
        ];
        let over = |limit: u64, used: u64, crossed: bool| used > limit || !crossed && used == limit;
        let counted = attempts.into_iter().map(|it| (it, false));
        let counted = counted.chain(tokens.into_iter().map(|it| (it, crossed)));
        let wall = ("wall_time", room.wall_ms, self.wall_ms(told));
        let counted = counted.chain([(wall, false)]);
        for ((name, limit, used), crossed) in counted {
            if let Some(limit) = limit.filter(|limit| over(*limit, used, crossed)) {
                return Some(UsedUp { budget: name, limit, used });
            }
        }
        let limit = room.events.filter(|limit| self.event_count() >= *limit)?;
        Some(UsedUp { budget: "events", limit, used: limit })
    }

    /// Returns how many executions may begin: those promised to runs below are not among them.
    pub(super) fn executions_left(&self, room: Room, with_promised: bool) -> u64 {
        let promised = self.dispatches.iter().filter_map(|open| open.share.tool_calls);
        let promised = if with_promised { promised.map(u64::from).sum() } else { 0 };
        let used = self.used().executions + promised;
        let calls = room.executions.map(|limit| limit.saturating_sub(used));
        let events = room.events.map(|limit| limit.saturating_sub(self.event_count()));
        calls.into_iter().chain(events).min().unwrap_or(u64::from(u32::MAX)).min(u32::MAX.into())
    }
}
