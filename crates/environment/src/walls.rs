//! Rules as this machine holds them.

mod decide;

use std::sync::Arc;

use layer0::error::EnvError;

pub(crate) use decide::Decision;

use crate::proxy::Gate;
use crate::rules::check;
use crate::{Helper, NotEnforced, Rules, Support};

/// Walls that programs are put into, each into its own.
///
/// A clone is the same walls.
#[derive(Debug, Clone)]
pub struct Walls(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    rules: Rules,
    helper: Helper,
    support: Support,
    decision: Decision,
    gate: Gate,
}

impl Walls {
    /// Makes walls of rules. It asks the machine what it can do ([`Support::probe`]), and may take some
    /// milliseconds the first time.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], when rules contradict each other, when a path is listed that is not there, or
    /// when something cannot be enforced here and the rules do not say `best_effort`.
    pub fn new(rules: Rules, helper: Helper) -> Result<Self, EnvError> {
        let (hosts, listed) = check(&rules)?;
        let support = Support::probe(&helper)?;
        let decision = Decision::new(&rules, listed, &support);
        if !rules.best_effort && !decision.not_enforced.is_empty() {
            let lacks: Vec<_> = decision.not_enforced.iter().map(ToString::to_string).collect();
            return Err(EnvError::ProvisionFailed(lacks.join("; ")));
        }
        let gate = Gate::new(rules.network.clone(), hosts, rules.private);
        Ok(Self(Arc::new(Parts { rules, helper, support, decision, gate })))
    }

    /// Returns what is asked for and not enforced; nothing unless the rules say `best_effort`.
    #[must_use]
    pub fn not_enforced(&self) -> &[NotEnforced] {
        &self.0.decision.not_enforced
    }

    /// Returns the rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Returns what this machine can enforce.
    #[must_use]
    pub fn support(&self) -> &Support {
        &self.0.support
    }

    /// Says whether the rules let a host through, by its name, for what reaches hosts in this process. What the name
    /// leads to is the caller's to judge.
    ///
    /// # Errors
    ///
    /// [`EnvError::NetworkDenied`], naming the host and what is granted.
    pub fn check_host(&self, host: &str) -> Result<(), EnvError> {
        self.0.gate.check_name(&host.to_ascii_lowercase()).map_err(EnvError::NetworkDenied)
    }

    pub(crate) fn helper(&self) -> &Helper {
        &self.0.helper
    }

    pub(crate) fn decision(&self) -> &Decision {
        &self.0.decision
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }
}
