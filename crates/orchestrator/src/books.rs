//! Books of an operator's child runs: their budget, their usage and their waits.

pub(crate) mod callers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_clock::Limit;
use futures_util::future::{Either, select};
use layer0::Timestamp;
use layer0::event::WaitFor;
use layer0::id::RunId;
use layer0::operator::{Answer, Caller, OwnWork, Signal, Signals, Waiting};
use layer0::stop::Stop;
use layer0::usage::{Allowance, Usage};
use serde_json::Value;
use tokio::sync::watch;

use crate::usage::{add_usage, at_least};

/// Whether an operator may be suspended while its child runs wait, to be resumed with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The operator's own work would be lost.
    Never,
    /// The operator starts again when its caller is resumed.
    WithCaller,
    /// The operator keeps a record.
    Always,
}

/// Books of one dispatch of an operator without a record, over all its attempts, or of a workflow's run.
pub(crate) struct Books {
    above: Option<Arc<dyn Caller>>,
    limit: Arc<Limit>,
    signals: Signals,
    leaving: Leaving,
    state: Mutex<BooksState>,
    /// Lock held during a request for more budget, so that two child runs in need do not both ask.
    refilling: tokio::sync::Mutex<()>,
    changed: watch::Sender<()>,
}

struct BooksState {
    /// The budget of all child runs together; no bound if `None`.
    allowance: Option<Allowance>,
    /// Number of requests to the caller for more budget.
    asked: u32,
    /// Results of the operator's requests for more budget for itself.
    own_grants: Vec<Option<Allowance>>,
    open: BTreeMap<RunId, UnendedDispatch>,
    /// Usage of the child runs that ended, by run: a child run that is answered from its record counts once.
    ended: BTreeMap<RunId, Usage>,
    /// Usage that the operator itself reported.
    stated: Usage,
    /// Usage that its earlier attempts reported.
    stated_before: Option<Usage>,
    /// Whether the waiting child runs were asked to suspend.
    leaves: bool,
    /// Whether a child run suspended, to be resumed later.
    is_left: bool,
    /// The earliest time at which a suspended child run continues by itself.
    parked_until: Option<Timestamp>,
    is_cancelled: bool,
    /// Number of dispatches held back until the operator either suspends or continues.
    held: u32,
    /// Number of pieces of work that the operator does itself.
    busy: u32,
}

/// A dispatch that has not ended.
struct UnendedDispatch {
    given: Option<Allowance>,
    /// Upper bound of its budget.
    at_most: Option<Allowance>,
    /// Usage of earlier attempts that the child run does not count itself.
    earlier: Option<Usage>,
    used: Usage,
    waiting: Option<Waiting>,
    /// Whether it asks for more budget.
    wants_more: bool,
    signals: Signals,
}

/// A dispatch that is about to start.
pub(crate) struct DispatchOpening {
    pub(crate) run: RunId,
    pub(crate) signals: Signals,
    /// Upper bound of its budget.
    pub(crate) at_most: Option<Allowance>,
    /// Whether its run has a record, which counts the usage of all its attempts.
    pub(crate) is_recorded: bool,
}

impl Books {
    pub(crate) fn new(
        above: Option<Arc<dyn Caller>>,
        allowance: Option<Allowance>,
        limit: Arc<Limit>,
        signals: Signals,
        leaving: Leaving,
    ) -> Arc<Self> {
        let state = BooksState {
            allowance,
            asked: 0,
            own_grants: Vec::new(),
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            stated: Usage::default(),
            stated_before: None,
            held: 0,
            busy: 0,
            leaves: false,
            is_left: false,
            parked_until: None,
            is_cancelled: false,
        };
        let changed = watch::Sender::new(());
        let (state, refilling) = (Mutex::new(state), tokio::sync::Mutex::default());
        Arc::new(Self { above, limit, signals, leaving, state, refilling, changed })
    }

    /// Reserves one of `parts` equal parts of the rest for a run; all of the rest if a part would be nothing.
    ///
    /// # Errors
    ///
    /// Code of the budget that is used up.
    pub(crate) fn begin(
        &self,
        opening: DispatchOpening,
        parts: u32,
    ) -> Result<Option<Allowance>, &'static str> {
        let mut state = self.state();
        let given = state.remaining_allowance().map(|left| share(left, parts));
        if let Some(code) = given.as_ref().and_then(Allowance::used_up) {
            return Err(code);
        }
        let given = least(given, opening.at_most);
        state.open(opening, given);
        drop(state);
        self.changed.send_replace(());
        Ok(given)
    }

    /// Records that nothing waits for a run any more, with its usage if known.
    pub(crate) fn end(&self, run: &RunId, answer: Option<&Answer>, is_left: bool) {
        let mut state = self.state();
        let Some(open) = state.open.remove(run) else { return };
        let used = answer.map_or(open.used, |answer| add_usage(open.earlier, &answer.usage));
        state.ended.insert(run.clone(), used);
        if is_left {
            state.is_left = true;
            let until = answer.and_then(|answer| answer.parked_until);
            state.parked_until = state.parked_until.into_iter().chain(until).min();
        }
        drop(state);
        self.tell_used();
        self.changed.send_replace(());
    }

    /// Returns whether the waiting child runs were asked to suspend, to be resumed with the operator.
    pub(crate) fn leaves(&self) -> bool {
        self.may_leave() && self.state().leaves
    }

    /// Returns whether the operator may be suspended and resumed later.
    fn may_leave(&self) -> bool {
        self.above.is_some() || self.leaving == Leaving::Always
    }

    /// Returns whether the cost of the child runs is bounded.
    pub(crate) fn bounds_cost(&self) -> bool {
        self.state().allowance.is_some_and(|allowance| allowance.cost_nanousd.is_some())
    }

    /// Returns the earliest time at which a suspended child run continues by itself.
    pub(crate) fn parked_until(&self) -> Option<Timestamp> {
        self.state().parked_until
    }

    /// Returns the answer of an operator that was suspended with its child runs.
    pub(crate) fn suspended_answer(&self) -> Answer {
        let mut answer = Answer::from_output(Value::Null);
        (answer.stop, answer.parked_until) = (Stop::WaitingApproval, self.state().parked_until);
        answer
    }

    /// Returns the usage of the operator with its child runs, whether or not its own report includes them.
    pub(crate) fn total_usage(&self, stated: &Usage) -> Usage {
        let state = self.state();
        at_least(&add_usage(state.stated_before, stated), &state.total_usage())
    }

    /// Prepares for another attempt of the operator: its reported usage until now still counts.
    pub(crate) fn attempt_again(&self) {
        let mut state = self.state();
        let stated = std::mem::take(&mut state.stated);
        state.stated_before = Some(add_usage(state.stated_before, &stated));
    }

    /// Reopens the books of a run that had this budget before.
    pub(crate) fn begin_again(&self, opening: DispatchOpening, given: Option<Allowance>) {
        self.state().open(opening, given);
        self.changed.send_replace(());
    }

    /// Counts a run that had ended before.
    pub(crate) fn ended_before(&self, run: RunId, used: Usage) {
        self.state().ended.insert(run, used);
    }

    /// Returns the known usage of a run.
    pub(crate) fn used_by(&self, run: &RunId) -> Usage {
        let state = self.state();
        let open = state.open.get(run).map(|open| open.used);
        open.or_else(|| state.ended.get(run).copied()).unwrap_or_default()
    }

    /// Asks the caller for more budget, unless more was requested since `asked`. Returns whether there is more now.
    pub(crate) async fn refill(&self, asked: u32) -> bool {
        let Some(above) = &self.above else { return false };
        let _one_at_a_time = self.refilling.lock().await;
        if self.state().asked != asked {
            return true;
        }
        let more = above.more(asked).await;
        let mut state = self.state();
        // A refusal counts too, as in the caller's record: the next request has another number.
        state.asked += 1;
        let Some(more) = more else { return false };
        state.allowance = state.allowance.map(|allowance| allowance.plus(&more));
        true
    }

    /// Asks the caller for more budget for the operator itself, which was given more `given` times. Such a grant is not
    /// also given to child runs.
    pub(crate) async fn more_for_itself(&self, given: u32) -> Option<Allowance> {
        let above = self.above.as_ref()?;
        let _one_at_a_time = self.refilling.lock().await;
        let place = usize::try_from(given).unwrap_or(usize::MAX);
        let (before, asked) = {
            let state = self.state();
            (state.own_grants.get(place).copied(), state.asked)
        };
        if let Some(before) = before {
            return before;
        }
        let more = above.more(asked).await;
        let mut state = self.state();
        state.asked += 1;
        state.own_grants.push(more);
        more
    }

    /// Returns the number of requests for more budget; `None` without a caller.
    pub(crate) fn request_count(&self) -> Option<u32> {
        self.above.as_ref().map(|_| self.state().asked)
    }

    /// Sets the number of earlier requests, whose grants are already part of the budget.
    pub(crate) fn asked_before(&self, asked: u32) {
        self.state().asked = asked;
    }

    /// Reports the state of the child runs to the caller, each wait once `note` has recorded it. Returns when the
    /// operator is to suspend.
    pub(crate) async fn follow<N>(&self, note: impl Fn(Waiting) -> N)
    where
        N: Future<Output = ()>,
    {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if self.has_left() {
                return;
            }
            let changed = Box::pin(changes.changed());
            let cancelled = Box::pin(self.forward_cancel());
            let Some(waiting) = self.waiting() else {
                self.limit.go_on();
                drop(select(changed, cancelled).await);
                continue;
            };
            self.limit.pause();
            note(waiting.clone()).await;
            let told_to_leave = Box::pin(self.told_to_leave(waiting));
            if let Either::Left(_) = select(told_to_leave, select(changed, cancelled)).await {
                self.state().leaves = true;
                self.changed.send_replace(());
            }
        }
    }

    /// Reports to the caller that all child runs wait. Returns when all are to suspend.
    async fn told_to_leave(&self, waiting: Waiting) {
        let is_settled = {
            let state = self.state();
            // Child runs that were asked to end do so, and need not suspend.
            state.leaves || state.is_cancelled
        };
        match &self.above {
            _ if is_settled => std::future::pending().await,
            Some(above) => above.wait(waiting).await,
            None if waiting.stays => std::future::pending().await,
            // Without a caller the answers report the wait.
            None => {}
        }
    }

    /// Forwards a cancellation of the operator to its child runs. Returns after that.
    async fn forward_cancel(&self) {
        if self.state().is_cancelled {
            return std::future::pending().await;
        }
        std::future::poll_fn(|context| self.signals.poll_has(Signal::CANCEL, context)).await;
        self.cancel();
    }

    /// Cancels the child runs.
    pub(crate) fn cancel(&self) {
        let mut state = self.state();
        state.is_cancelled = true;
        state.open.values().for_each(|open| open.signals.push(Signal::cancel()));
    }

    /// Marks all child runs as not given up: another process resumes them.
    pub(crate) fn detach(&self) {
        self.state().open.values().for_each(|open| open.signals.detach());
    }

    /// Waits until child runs may act.
    async fn until_may_act(&self) {
        if let Some(above) = &self.above {
            above.until_may_act().await;
        }
    }

    /// Waits until child runs have to stop acting.
    async fn must_stop(&self) {
        match &self.above {
            Some(above) => above.must_stop().await,
            None => std::future::pending().await,
        }
    }

    /// Holds a dispatch back until the operator either suspends or continues.
    pub(crate) async fn hold_while_leaving(&self) {
        if !self.leaves() {
            return;
        }
        let _held = DispatchHold::new(self);
        let mut changes = self.changed.subscribe();
        while self.leaves() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns whether all child runs that were asked to suspend did so, and nothing else is left to do.
    fn has_left(&self) -> bool {
        let mut state = self.state();
        if !state.open.is_empty() {
            return false;
        }
        let was_leaving = std::mem::take(&mut state.leaves);
        // A child run that was asked to suspend ended instead, and the operator acts on its answer first.
        if state.held == 0 && state.busy == 0 {
            return std::mem::take(&mut state.is_left) && self.may_leave();
        }
        drop(state);
        if was_leaving {
            self.changed.send_replace(());
        }
        false
    }

    /// Returns the combined wait if there is nothing to do but wait.
    fn waiting(&self) -> Option<Waiting> {
        let state = self.state();
        if state.busy > 0 {
            return None;
        }
        let all: Option<Vec<_>> = state.open.values().map(|open| open.waiting.as_ref()).collect();
        let all = all.filter(|all| !all.is_empty())?;
        let approvals: Vec<_> = all.iter().flat_map(|one| one.approvals.iter().cloned()).collect();
        let r#for = match approvals.is_empty() {
            true => all[0].r#for,
            false => WaitFor::Approval,
        };
        let must_stay = self.above.is_some() && self.leaving == Leaving::Never;
        let stays = must_stay || all.iter().any(|one| one.stays);
        let mut waiting = Waiting::new(r#for, approvals).stays(stays);
        let first = all.iter().filter(|one| one.until.is_some()).min_by_key(|one| one.until);
        (waiting.until, waiting.reason) =
            first.map_or((None, None), |one| (one.until, one.reason.clone()));
        Some(waiting)
    }

    fn tell_used(&self) {
        if let Some(above) = &self.above {
            let used = self.state().total_usage();
            above.report_usage(used);
        }
    }

    fn state(&self) -> MutexGuard<'_, BooksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnWork for Books {
    fn begin(&self) {
        self.state().busy += 1;
        self.changed.send_replace(());
    }

    fn end(&self) {
        let mut state = self.state();
        state.busy = state.busy.saturating_sub(1);
        drop(state);
        self.changed.send_replace(());
    }
}

impl BooksState {
    fn open(&mut self, opening: DispatchOpening, given: Option<Allowance>) {
        let DispatchOpening { run, signals, at_most, is_recorded } = opening;
        let before = self.ended.remove(&run);
        let earlier = before.filter(|_| !is_recorded);
        let used = before.unwrap_or_default();
        let (waiting, wants_more) = (None, false);
        let open = UnendedDispatch { given, at_most, earlier, used, waiting, wants_more, signals };
        self.open.insert(run, open);
    }

    fn remaining_allowance(&self) -> Option<Allowance> {
        let ended = self.ended.values().fold(self.allowance?, |left, used| left.less(&used.into()));
        let given = self.open.values().map(|open| match &open.given {
            Some(given) => *given,
            None => (&open.used).into(),
        });
        Some(given.fold(ended, |left, given| left.less(&given)))
    }

    fn total_usage(&self) -> Usage {
        let mut below = Usage::free();
        self.ended.values().for_each(|used| below.add_dispatched(used));
        self.open.values().for_each(|open| below.add_dispatched(&open.used));
        at_least(&add_usage(self.stated_before, &self.stated), &below)
    }

    /// Gives a child run a share of the rest within its upper bound. Returns `None` if it has reached that bound.
    fn grant(&mut self, run: &RunId, left: Allowance) -> Option<Allowance> {
        let open = self.open.get_mut(run)?;
        let more = least(Some(share(left, 2)), open.rest())?;
        if more.used_up().is_some() {
            return None;
        }
        open.given = open.given.map(|given| given.plus(&more));
        Some(more)
    }

    /// Returns whether another run is running that may give some of its budget back. One that waits for a person is not
    /// waited for: the decision may never come, and the run keeps its budget for its own work after it.
    fn others_work(&self, run: &RunId) -> bool {
        let works = |open: &UnendedDispatch| open.waiting.is_none() && !open.wants_more;
        self.open.iter().any(|(other, open)| other != run && works(open))
    }
}

impl UnendedDispatch {
    /// Returns the budget that it may still be given; `None` without a bound.
    fn rest(&self) -> Option<Allowance> {
        let given = self.given.unwrap_or_else(Allowance::without_bounds);
        self.at_most.map(|at_most| at_most.less(&given))
    }
}

/// Returns the smaller of two optional allowances.
pub(crate) fn least(one: Option<Allowance>, other: Option<Allowance>) -> Option<Allowance> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.least(&other)),
        (one, other) => one.or(other),
    }
}

/// Guard of a dispatch that is held back.
struct DispatchHold<'a>(&'a Books);

impl<'a> DispatchHold<'a> {
    fn new(books: &'a Books) -> Self {
        books.state().held += 1;
        books.changed.send_replace(());
        Self(books)
    }
}

impl Drop for DispatchHold<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.held = state.held.saturating_sub(1);
        drop(state);
        self.0.changed.send_replace(());
    }
}

/// Returns one of `parts` equal parts; all of `left` if a part would be nothing.
fn share(left: Allowance, parts: u32) -> Allowance {
    let part = left.part(parts);
    if part.used_up().is_some() { left } else { part }
}
