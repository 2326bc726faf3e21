//! The queue of one account: what many runs reserve and settle at once is one addition in the store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::Clock;
use futures_util::future::select;
use layer0::StateStore;
use layer0::error::StateError;
use layer0::failure::{Effect, Failure};
use layer0::state::{Added, StateAdd};
use tokio::sync::{Notify, oneshot};
use tracing::instrument::WithSubscriber;

use super::account::Account;
use super::round::{AccountRound, Reservation, UsedUp};
use crate::effect::guard::GuardedStore;

/// The number of times that a failed settlement is sent again by itself.
const MAX_RETRIES: u32 = 8;
/// The delay before the first of these, and the longest before a later one.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The changes of one account in this process, which one task at a time writes.
pub(super) struct AccountQueue {
    account: Account,
    store: Arc<GuardedStore<dyn StateStore>>,
    clock: Arc<dyn Clock>,
    state: Mutex<AccountState>,
    arrived: Notify,
}

#[derive(Default)]
struct AccountState {
    next: AccountRound,
    /// The number that was stored when it was last seen.
    seen: u64,
    is_served: bool,
}

impl AccountQueue {
    pub(super) fn new(
        account: Account,
        store: Arc<GuardedStore<dyn StateStore>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { account, store, clock, state: Mutex::default(), arrived: Notify::new() }
    }

    pub(super) const fn account(&self) -> &Account {
        &self.account
    }

    /// Returns whether nothing is left to be written.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        !state.is_served && state.next.is_empty()
    }

    /// Reserves what an attempt may cost, unless `max` is used.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing stays reserved once that is written.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        may_cost: u64,
        max: u64,
    ) -> Result<Result<(), UsedUp>, StateError> {
        let (answer, answered) = oneshot::channel();
        self.push(|next| next.reservations.push(Reservation { may_cost, max, answer }));
        answered.await.unwrap_or_else(|_| Err(make_lost_error()))
    }

    /// Changes the account by the difference between what an attempt cost and what was reserved. If that fails, it is
    /// sent again with what is written next, or by itself.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is written all the same.
    pub(super) async fn settle(self: &Arc<Self>, change: i64) -> Result<(), StateError> {
        if change == 0 {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        self.push(|next| {
            next.owed = next.owed.saturating_add(change);
            next.settlements.push(answer);
        });
        answered.await.unwrap_or_else(|_| Err(make_lost_error()))
    }

    fn push(self: &Arc<Self>, push: impl FnOnce(&mut AccountRound)) {
        let mut state = self.state();
        push(&mut state.next);
        if std::mem::replace(&mut state.is_served, true) {
            drop(state);
            return self.arrived.notify_one();
        }
        drop(state);
        let service = AccountWriter { queue: Arc::clone(self), has_ended: false };
        let task = async move { service.serve().await }.with_current_subscriber();
        tokio::spawn(self.clock.track(Box::pin(task)));
    }

    fn state(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that writes an account.
struct AccountWriter {
    queue: Arc<AccountQueue>,
    has_ended: bool,
}

impl AccountWriter {
    async fn serve(mut self) {
        let mut retries = 0;
        while self.take_turn(&mut retries).await {}
        self.has_ended = true;
    }

    /// Writes what is queued; returns `false` when nothing is left that can be written now.
    async fn take_turn(&self, retries: &mut u32) -> bool {
        let round = {
            let mut state = self.queue.state();
            let is_retry = state.next.is_owed_alone();
            if state.next.is_empty() || is_retry && *retries >= MAX_RETRIES {
                state.is_served = false;
                return false;
            }
            (!is_retry || *retries == 0).then(|| std::mem::take(&mut state.next))
        };
        let round = match round {
            Some(round) => round,
            None => self.wait(*retries).await,
        };
        match self.perform(round).await {
            true => *retries = 0,
            false => *retries += 1,
        }
        true
    }

    /// Waits until a settlement is to be sent again, or is sent with something else.
    async fn wait(&self, retries: u32) -> AccountRound {
        let factor = 2_u32.saturating_pow(retries.saturating_sub(1));
        let wait = FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT);
        select(std::pin::pin!(self.queue.arrived.notified()), self.queue.clock.sleep(wait)).await;
        std::mem::take(&mut self.queue.state().next)
    }

    /// Writes a round; returns whether that succeeded.
    async fn perform(&self, round: AccountRound) -> bool {
        match self.write(&round).await {
            Ok((seen, refused)) => {
                let unused = round.answer(&refused);
                let mut state = self.queue.state();
                state.seen = seen;
                // Reservations that nobody waits for are given back.
                state.next.owed = state.next.owed.saturating_sub_unsigned(unused);
                true
            }
            Err(FailedRound { error, is_unwritten }) => {
                // A refund that may have been written would count twice.
                let owed = if is_unwritten { round.owed } else { round.owed.max(0) };
                let mut state = self.queue.state();
                state.next.owed = state.next.owed.saturating_add(owed);
                drop(state);
                round.fail(&error);
                false
            }
        }
    }

    /// Adds what a round may add. Returns the number that is stored, and the places of the reservations that have
    /// nothing left, with what is used.
    async fn write(
        &self,
        round: &AccountRound,
    ) -> Result<(u64, Vec<(usize, UsedUp)>), FailedRound> {
        let (mut seen, mut is_fresh) = (self.queue.state().seen, false);
        loop {
            let admission = round.admit(seen);
            if !admission.refused.is_empty() && !is_fresh {
                (seen, is_fresh) = (self.read().await.map_err(FailedRound::before_write)?, true);
                continue;
            }
            if admission.is_empty() {
                return Ok((seen, admission.refused));
            }
            match self.add(admission.amount, admission.bound).await? {
                Added::Done(sum) => return Ok((sum, admission.refused)),
                Added::Refused(found) => (seen, is_fresh) = (found, true),
                _ => return Err(StateError::Other("an unknown answer".into()).into()),
            }
        }
    }

    async fn read(&self) -> Result<u64, StateError> {
        let account = &self.queue.account;
        match self.queue.store.read(&account.scope, &account.key).await? {
            Some(stored) => account.read_used(&stored),
            None => Ok(0),
        }
    }

    async fn add(&self, amount: i64, bound: Option<u64>) -> Result<Added, FailedRound> {
        let Account { scope, key, keep, .. } = &self.queue.account;
        let mut add = StateAdd::new(scope.clone(), key, amount).expires_after(*keep);
        add.unless_above = bound;
        match self.queue.store.add(add.clone()).await {
            // An account of an earlier version is no number.
            Err(StateError::Serialization(_)) => {
                self.convert().await.map_err(FailedRound::before_write)?;
                Ok(self.queue.store.add(add).await?)
            }
            added => Ok(added?),
        }
    }

    /// Replaces what an earlier version stored by the number that is used.
    async fn convert(&self) -> Result<(), StateError> {
        let account = &self.queue.account;
        let stored = self.queue.store.read(&account.scope, &account.key).await?;
        let Some(stored) = stored else { return Ok(()) };
        match self.queue.store.write(account.convert(&stored)?).await {
            Ok(_) | Err(StateError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The error of a round.
struct FailedRound {
    error: StateError,
    /// Whether nothing of the round can have been written.
    is_unwritten: bool,
}

impl FailedRound {
    /// Makes the error of a step before the addition.
    const fn before_write(error: StateError) -> Self {
        Self { error, is_unwritten: true }
    }
}

impl From<StateError> for FailedRound {
    fn from(error: StateError) -> Self {
        let is_unwritten = error.facts().effect == Effect::None;
        Self { error, is_unwritten }
    }
}

/// A service whose runtime ends leaves nobody waiting.
impl Drop for AccountWriter {
    fn drop(&mut self) {
        // Another task may be running by now.
        if self.has_ended {
            return;
        }
        let mut state = self.queue.state();
        let owed = state.next.owed;
        let left = std::mem::take(&mut state.next);
        (state.next.owed, state.is_served) = (owed, false);
        drop(state);
        drop(left);
    }
}

fn make_lost_error() -> StateError {
    StateError::Other("the task of the spend limit was lost".into())
}
