//! Rules as they are enforced on this machine.

mod decide;

use std::sync::Arc;

use layer0::error::EnvError;

pub(crate) use decide::EnforcementPlan;

use crate::proxy::HostGate;
use crate::rules::check;
use crate::{Helper, NotEnforced, Rules, Support};

/// Walls for programs. Each program gets its own instance.
///
/// A clone refers to the same walls.
#[derive(Debug, Clone)]
pub struct Walls(Arc<WallParts>);

#[derive(Debug)]
struct WallParts {
    rules: Rules,
    helper: Helper,
    support: Support,
    decision: EnforcementPlan,
    gate: HostGate,
}

impl Walls {
    /// Builds walls from rules. Probes the mechanisms of the machine ([`Support::probe`]), which may take some
    /// milliseconds the first time.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`] if rules contradict each other, if a listed path does not exist, or if something
    /// cannot be enforced here and the rules do not set `best_effort`.
    pub fn new(rules: Rules, helper: Helper) -> Result<Self, EnvError> {
        let (hosts, listed) = check(&rules)?;
        let support = Support::probe(&helper)?;
        let decision = EnforcementPlan::new(&rules, listed, &support);
        if !rules.best_effort && !decision.not_enforced.is_empty() {
            let lacks: Vec<_> = decision.not_enforced.iter().map(ToString::to_string).collect();
            return Err(EnvError::ProvisionFailed(lacks.join("; ")));
        }
        let gate = HostGate::new(rules.network.clone(), hosts, rules.private);
        Ok(Self(Arc::new(WallParts { rules, helper, support, decision, gate })))
    }

    /// Returns the rules that are not enforced; empty unless the rules set `best_effort`.
    #[must_use]
    pub fn not_enforced(&self) -> &[NotEnforced] {
        &self.0.decision.not_enforced
    }

    /// Returns the rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Returns the grants of the rules that are enforced; see [`Rules::describe_grants`]. A rule without a wall, as
    /// `best_effort` permits, is left out: it is not the reason of a failure.
    #[must_use]
    pub fn describe_grants(&self) -> Option<String> {
        self.0.rules.describe(|rule| self.0.decision.enforcement(rule))
    }

    /// Returns the mechanisms that this machine supports.
    #[must_use]
    pub fn support(&self) -> &Support {
        &self.0.support
    }

    /// Checks a host by name against the rules, for code in this process that connects to hosts. The caller has to
    /// check the addresses of the name.
    ///
    /// # Errors
    ///
    /// [`EnvError::NetworkDenied`] with the host and the granted ones.
    pub fn check_host(&self, host: &str) -> Result<(), EnvError> {
        self.0.gate.check_name(&host.to_ascii_lowercase()).map_err(EnvError::NetworkDenied)
    }

    pub(crate) fn helper(&self) -> &Helper {
        &self.0.helper
    }

    pub(crate) fn decision(&self) -> &EnforcementPlan {
        &self.0.decision
    }

    pub(crate) fn gate(&self) -> &HostGate {
        &self.0.gate
    }
}
