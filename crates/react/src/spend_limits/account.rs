//! The account of a limit for a day or a month: a whole number in the state store.

use std::collections::BTreeMap;
use std::time::Duration;

use backstop_event_log::account_scope;
use backstop_react_machine::{LimitPeriod, LimitScope, SpendLimit};
use layer0::Timestamp;
use layer0::code;
use layer0::error::StateError;
use layer0::event::BudgetExhausted;
use layer0::state::{Expected, Scope, StateWrite, Versioned};
use layer0::usage::dollars;
use serde::Deserialize;
use serde_json::{Number, Value};

use super::round::UsedUp;
use crate::hook::HookContext;

/// The time that an account is kept after its last write: at least a week after its day or month.
const KEEP_DAY: Duration = Duration::from_secs(8 * 24 * 60 * 60);
const KEEP_MONTH: Duration = Duration::from_secs(38 * 24 * 60 * 60);

/// The place of an account. What is spent and what is reserved for attempts in flight is one number there, in
/// billionths of a dollar: what a process reserved that died counts as spent.
pub(super) struct Account {
    pub(super) scope: Scope,
    pub(super) key: String,
    pub(super) keep: Duration,
    /// The limit for people.
    pub(super) name: String,
}

/// The account as earlier versions stored it.
#[derive(Deserialize)]
struct Balance {
    spent_nanousd: u64,
    #[serde(default)]
    reserved: BTreeMap<String, u64>,
}

impl Account {
    /// Returns the account of a run under a limit; `None` if the limit does not apply to the run.
    pub(super) fn of_run(
        agent: &str,
        limit: &SpendLimit,
        context: &HookContext,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Option<Self> {
        let (kind, id, whose) = match &limit.scope {
            LimitScope::Agent => ("agent", agent.to_owned(), format!("agent `{agent}`")),
            LimitScope::Label(key) => {
                let value = labels.get(key)?;
                // Neither can be taken for a part of the other.
                let id = format!("{}={value}", key.replace('%', "%25").replace('=', "%3D"));
                ("label", id, format!("label `{key}` = `{value}`"))
            }
            LimitScope::Session => {
                let session = context.session.as_str();
                ("session", session.to_owned(), format!("session `{session}`"))
            }
            _ => ("global", "all".to_owned(), "all agents".to_owned()),
        };
        let scope = account_scope(kind, &id)?;
        let day = now.date();
        let (key, keep) = match limit.per {
            LimitPeriod::Day => (day, KEEP_DAY),
            _ => (day.get(..7).unwrap_or_default().to_owned(), KEEP_MONTH),
        };
        let name = format!("spend limit of {whose} per {}", limit.per.as_str());
        Some(Self { scope, key, keep, name })
    }

    /// Returns the used amount in a stored value.
    pub(super) fn read_used(&self, stored: &Versioned) -> Result<u64, StateError> {
        if let Ok(used) = stored.value.read() {
            return Ok(used);
        }
        let balance: Balance =
            stored.value.read().map_err(|error| StateError::Serialization(error.to_string()))?;
        let reserved = balance.reserved.values();
        Ok(reserved.fold(balance.spent_nanousd, |sum, each| sum.saturating_add(*each)))
    }

    /// Returns the write that replaces a stored value by the number that is used.
    pub(super) fn convert(&self, stored: &Versioned) -> Result<StateWrite, StateError> {
        let used = self.read_used(stored)?.min(i64::MAX.unsigned_abs());
        let write = StateWrite::new(self.scope.clone(), self.key.clone(), Value::from(used));
        Ok(write.expecting(Expected::Version(stored.version)).expires_after(self.keep))
    }

    /// Returns the event of a run that has nothing left under a limit.
    pub(super) fn make_event(&self, UsedUp(used): UsedUp, max_nanousd: u64) -> BudgetExhausted {
        let number = |nanousd| Number::from_f64(dollars(nanousd)).unwrap_or_else(|| 0.into());
        let (limit, used) = (number(max_nanousd), number(used));
        let message = format!("{}: {used} of {limit} used", self.name);
        let reason = code::BUDGET_COST_USD;
        let dimension = reason.trim_start_matches("budget.");
        BudgetExhausted::new(reason, dimension, limit, used, message)
    }
}
