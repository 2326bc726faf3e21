//! Spending that runs share: reserved in the state store before each attempt of a model call, settled after it.

mod account;
mod queue;
mod round;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_react_machine::SpendLimit;
use layer0::StateStore;
use layer0::error::StateError;
use layer0::event::BudgetExhausted;
use layer0::id::RunId;
use layer0::state::Scope;

use self::account::Account;
use self::queue::AccountQueue;
use crate::effect::guard::GuardedStore;
use crate::hook::HookContext;

/// The number of accounts from which on those that are not in use are looked for.
const MANY_ACCOUNTS: usize = 64;

/// The limits of an agent, and its accounts in the state store.
pub(crate) struct SpendLimits {
    agent: Arc<str>,
    limits: Arc<[SpendLimit]>,
    store: Arc<GuardedStore<dyn StateStore>>,
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
}

/// The queues of accounts that are in use.
#[derive(Default)]
struct Queues {
    by_place: BTreeMap<(Scope, String), Arc<AccountQueue>>,
    /// The number of queues from which on unused ones are removed.
    many: usize,
}

/// The amount reserved for an attempt.
#[must_use = "it is settled after the attempt"]
pub(crate) struct SpendReservation {
    run: RunId,
    may_cost: u64,
    queues: Vec<Arc<AccountQueue>>,
}

/// The reason that nothing is reserved and no attempt is made.
pub(crate) enum NotReserved {
    /// The store failed. Names the limit that could not be checked.
    Failed(String, StateError),
    Refused(BudgetExhausted),
}

impl SpendLimits {
    pub(crate) fn new(
        agent: Arc<str>,
        limits: Arc<[SpendLimit]>,
        store: Arc<dyn StateStore>,
        patience: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let (store, clock) = (GuardedStore::new(store, patience, clock), Arc::clone(clock));
        Self { agent, limits, store: Arc::new(store), clock, queues: Mutex::default() }
    }

    /// Reserves what an attempt of a run may cost under every limit that applies to it. What is reserved of an attempt
    /// whose process died stays used.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, what one limit allowed may stay reserved, as it does when the process dies.
    pub(crate) async fn reserve(
        &self,
        context: &HookContext,
        labels: &BTreeMap<String, String>,
        may_cost: u64,
    ) -> Result<SpendReservation, NotReserved> {
        let now = self.clock.now(); // time of day: a period is one of the calendar.
        let mut reserved =
            SpendReservation { run: context.run.clone(), may_cost, queues: Vec::new() };
        for limit in &*self.limits {
            let account = Account::of_run(&self.agent, limit, context, labels, now);
            let Some(queue) = account.map(|account| self.queue(account)) else { continue };
            let max = limit.max_nanousd();
            let refused = match queue.reserve(may_cost, max).await {
                Ok(Ok(())) => {
                    reserved.queues.push(queue);
                    continue;
                }
                Ok(Err(used)) => NotReserved::Refused(queue.account().make_event(used, max)),
                Err(error) => NotReserved::Failed(queue.account().name.clone(), error),
            };
            self.settle(reserved, Some(0)).await;
            return Err(refused);
        }
        Ok(reserved)
    }

    /// Counts what the attempt cost instead of what was reserved for it; what was reserved, where that is not known.
    pub(crate) async fn settle(&self, reserved: SpendReservation, cost: Option<u64>) {
        let SpendReservation { run, may_cost, queues } = reserved;
        let signed = |nanousd: u64| i64::try_from(nanousd).unwrap_or(i64::MAX);
        let change = signed(cost.unwrap_or(may_cost)).saturating_sub(signed(may_cost));
        for queue in queues {
            if let Err(error) = queue.settle(change).await {
                let name = &queue.account().name;
                tracing::warn!(%run, %error, "what was reserved under the {name} is not settled yet");
            }
        }
    }

    /// Returns the queue of an account in this process.
    fn queue(&self, account: Account) -> Arc<AccountQueue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.remove_unused();
        let place = (account.scope.clone(), account.key.clone());
        let queue = queues.by_place.entry(place).or_insert_with(|| {
            let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
            Arc::new(AccountQueue::new(account, store, clock))
        });
        Arc::clone(queue)
    }
}

impl Queues {
    /// Removes the queues of accounts that no run uses, once there are many: days pass, and sessions end.
    fn remove_unused(&mut self) {
        if self.by_place.len() >= self.many.max(MANY_ACCOUNTS) {
            self.by_place.retain(|_, queue| Arc::strong_count(queue) > 1 || !queue.is_empty());
            self.many = self.by_place.len().saturating_mul(2);
        }
    }
}
