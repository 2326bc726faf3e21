//! What runs spend together: reserved in the state store before each attempt of a model call, settled after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::text_digest;
use backstop_react_machine::{LimitPeriod, LimitScope, SpendLimit};
use backstop_retry::Jitter;
use layer0::error::StateError;
use layer0::event::BudgetExhausted;
use layer0::id::RunId;
use layer0::state::{Expected, Scope, StateWrite, Versioned};
use layer0::usage::dollars;
use layer0::{StateStore, Timestamp, code};
use serde::{Deserialize, Serialize};
use serde_json::{Number, json};

use crate::effect::guard::Guarded;
use crate::hook::HookContext;

/// How often a write is tried where other processes write the same account.
const MAX_TRIES: u32 = 200;
/// The longest wait between two of them, in milliseconds.
const MAX_WAIT_MS: u64 = 50;
/// How long an account stays after its last write: at least a week after its day or month.
const KEEP_DAY: Duration = Duration::from_secs(8 * 24 * 60 * 60);
const KEEP_MONTH: Duration = Duration::from_secs(38 * 24 * 60 * 60);

/// The limits of an agent, and where its spending stands.
pub(crate) struct SpendLimits {
    agent: Arc<str>,
    limits: Arc<[SpendLimit]>,
    store: Guarded<dyn StateStore>,
    clock: Arc<dyn Clock>,
    jitter: Jitter,
}

/// What is reserved for an attempt.
#[must_use = "it is settled after the attempt"]
pub(crate) struct Reserved {
    run: RunId,
    accounts: Vec<Account>,
}

/// Why nothing is reserved; then no attempt is made.
pub(crate) enum NotReserved {
    /// The store failed. With the limit that could not be looked at.
    Failed(String, StateError),
    Refused(BudgetExhausted),
}

/// Where the spending of a limit stands for a day or a month.
struct Account {
    scope: Scope,
    key: String,
    keep: Duration,
    /// The limit for people.
    name: String,
    max_nanousd: u64,
}

/// What is stored of an account.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Balance {
    spent_nanousd: u64,
    /// What attempts in flight may cost, by run.
    #[serde(default)]
    reserved: BTreeMap<String, u64>,
}

/// What was used of an account that has nothing left.
struct Used(u64);

impl SpendLimits {
    pub(crate) fn new(
        agent: Arc<str>,
        limits: Arc<[SpendLimit]>,
        store: Arc<dyn StateStore>,
        patience: Duration,
        clock: &Arc<dyn Clock>,
        jitter: Jitter,
    ) -> Self {
        let (store, clock) = (Guarded::new(store, patience, clock), Arc::clone(clock));
        Self { agent, limits, store, clock, jitter }
    }

    /// Reserves what an attempt of a run may cost under every limit that applies to it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it may stay reserved, as it does when the process dies.
    pub(crate) async fn reserve(
        &self,
        context: &HookContext,
        labels: &BTreeMap<String, String>,
        may_cost: u64,
    ) -> Result<Reserved, NotReserved> {
        let now = self.clock.now();
        let mut reserved = Reserved { run: context.run.clone(), accounts: Vec::new() };
        for limit in &*self.limits {
            let Some(account) = self.account(limit, context, labels, now) else { continue };
            let reserve = |balance: &mut Balance| {
                balance.reserve(&context.run, may_cost, account.max_nanousd)
            };
            let refused = match self.change(&account, reserve).await {
                Ok(Ok(())) => {
                    reserved.accounts.push(account);
                    continue;
                }
                Ok(Err(used)) => NotReserved::Refused(account.exhausted(used)),
                Err(error) => NotReserved::Failed(account.name, error),
            };
            self.settle(reserved, Some(0)).await;
            return Err(refused);
        }
        Ok(reserved)
    }

    /// Counts what the attempt cost instead of what was reserved for it; what was reserved, where that is not known.
    /// Where it fails, it stays reserved, and
    /// the next attempt of the run counts that as spent.
    pub(crate) async fn settle(&self, reserved: Reserved, cost: Option<u64>) {
        let Reserved { run, accounts } = reserved;
        for account in accounts {
            let settle = |balance: &mut Balance| {
                let reserved = balance.reserved.remove(run.as_str()).unwrap_or_default();
                let cost = cost.unwrap_or(reserved);
                balance.spent_nanousd = balance.spent_nanousd.saturating_add(cost);
                Ok(())
            };
            if let Err(error) = self.change(&account, settle).await {
                let name = &account.name;
                tracing::warn!(%run, %error, "what was reserved under the {name} is not settled");
            }
        }
    }

    /// Changes a balance over what is stored, again and again while others write it too.
    async fn change(
        &self,
        account: &Account,
        change: impl Fn(&mut Balance) -> Result<(), Used>,
    ) -> Result<Result<(), Used>, StateError> {
        let Account { scope, key, keep, .. } = account;
        for tried in 1.. {
            let stored = self.store.read(scope, key).await?;
            let expected =
                stored.as_ref().map_or(Expected::Absent, |it| Expected::Version(it.version));
            let mut balance = stored.map_or_else(|| Ok(Balance::default()), read)?;
            if let Err(used) = change(&mut balance) {
                return Ok(Err(used));
            }
            let write = StateWrite::new(scope.clone(), key, json!(balance)).expecting(expected);
            match self.store.write(write.expires_after(*keep)).await {
                Err(StateError::Conflict { .. }) if tried < MAX_TRIES => {
                    let wait =
                        self.jitter.up_to(u64::from(tried).saturating_mul(2).min(MAX_WAIT_MS));
                    self.clock.sleep(Duration::from_millis(wait)).await;
                }
                written => return written.map(|_| Ok(())),
            }
        }
        Ok(Ok(()))
    }

    /// Returns where the spending of a run stands under a limit; `None` where the limit is not for it.
    fn account(
        &self,
        limit: &SpendLimit,
        context: &HookContext,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Option<Account> {
        let (kind, of, whose) = match &limit.scope {
            LimitScope::Agent => {
                ("agent", self.agent.to_string(), format!("agent `{}`", self.agent))
            }
            LimitScope::Label(key) => {
                let value = labels.get(key)?;
                // Neither can be taken for a part of the other.
                let of = format!("{}={value}", key.replace('%', "%25").replace('=', "%3D"));
                ("label", of, format!("label `{key}` = `{value}`"))
            }
            LimitScope::Session => {
                let session = context.session.as_str();
                ("session", session.to_owned(), format!("session `{session}`"))
            }
            _ => ("global", "all".to_owned(), "all agents".to_owned()),
        };
        let scope = Scope::custom("limit", &format!("{kind}:{of}")).or_else(|_| {
            // Too long for a scope, or with characters that none has.
            Scope::custom("limit", &format!("{kind}:sha256:{}", text_digest(&of)))
        });
        let day = now.date();
        let (key, keep) = match limit.per {
            LimitPeriod::Day => (day, KEEP_DAY),
            _ => (day.get(..7).unwrap_or_default().to_owned(), KEEP_MONTH),
        };
        let name = format!("spend limit of {whose} per {}", limit.per.as_str());
        Some(Account { scope: scope.ok()?, key, keep, name, max_nanousd: limit.max_nanousd() })
    }
}

impl Balance {
    /// Reserves what an attempt may cost, unless the rest is spent or reserved for others. What is still reserved
    /// for the run is of an attempt whose process died: it may have been billed, and counts as spent.
    fn reserve(&mut self, run: &RunId, may_cost: u64, max: u64) -> Result<(), Used> {
        let lost = self.reserved.remove(run.as_str()).unwrap_or_default();
        self.spent_nanousd = self.spent_nanousd.saturating_add(lost);
        let used =
            self.reserved.values().fold(self.spent_nanousd, |sum, it| sum.saturating_add(*it));
        if used >= max {
            return Err(Used(used));
        }
        self.reserved.insert(run.to_string(), may_cost);
        Ok(())
    }
}

impl Account {
    fn exhausted(&self, Used(used): Used) -> BudgetExhausted {
        let number = |nanousd| Number::from_f64(dollars(nanousd)).unwrap_or_else(|| 0.into());
        let (limit, used) = (number(self.max_nanousd), number(used));
        let message = format!("{}: {used} of {limit} used", self.name);
        let reason = code::BUDGET_COST_USD;
        let dimension = reason.trim_start_matches("budget.");
        BudgetExhausted::new(reason, dimension, limit, used, message)
    }
}

fn read(stored: Versioned) -> Result<Balance, StateError> {
    serde_json::from_value(stored.value)
        .map_err(|error| StateError::Serialization(error.to_string()))
}
