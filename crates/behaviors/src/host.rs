//! The host that delivers events to behaviours.

use std::fmt;
use std::sync::Arc;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::EventLog;
use backstop_react::{Agent, Pack, PackError};
use backstop_redact::Redactor;
use layer0::failure::{Effect, Facts, Failure};
use layer0::name::{NameError, check_behavior_name};
use layer0::usage::Allowance;
use layer0::{Orchestrator, StateStore, code};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::behavior::Behavior;
use crate::cause::KnownCauses;
use crate::context::Means;
use crate::delivery::read_delivery_id;
use crate::pack::collect_behaviors;
use crate::redeliver::{RedeliverError, Redelivered, redeliver};
use crate::serving::{Served, Serving};
use crate::subscription::{Serve, StatusSender};

/// Delivers events of a log to behaviours; built with [`BehaviorHost::builder`].
///
/// One host at a time serves a subscription, under a claim as for runs: other hosts on the same log, in any process,
/// wait, and one of them takes the subscription over when the claim is released or its process dies.
pub struct BehaviorHost {
    behaviors: Vec<Granted>,
    means: Arc<Means>,
}

/// A behaviour, with the grants of its pack.
type Granted = (Arc<dyn Behavior>, Arc<[String]>);

/// Builder of a [`BehaviorHost`].
#[must_use = "a host is made by `build`"]
pub struct BehaviorHostBuilder {
    behaviors: Vec<Granted>,
    packs: Vec<Pack>,
    means: Means,
}

/// Error of [`BehaviorHostBuilder::build`].
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// Two behaviours have this name.
    ///
    /// Retry: never. Effect: none.
    #[error("there is already a behaviour named `{0}`")]
    Duplicate(String),
    /// The name of a behaviour is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid behaviour")]
    Name(#[from] NameError),
    /// A pack cannot be loaded.
    ///
    /// Retry: never. Effect: none.
    #[error("a pack cannot be loaded")]
    Pack(#[from] PackError),
}

impl Failure for HostError {
    fn facts(&self) -> Facts {
        match self {
            Self::Duplicate(_) | Self::Name(_) | Self::Pack(_) => {
                Facts::never(code::CONFIG_INVALID, Effect::None)
            }
        }
    }
}

impl BehaviorHost {
    /// Returns a builder of a host for a log.
    pub fn builder(log: Arc<dyn EventLog>) -> BehaviorHostBuilder {
        let means = Means {
            log,
            clock: Arc::new(SystemClock),
            orchestrator: None,
            state: None,
            agents: Vec::new(),
            grants: Vec::new(),
            allowance: None,
            redactor: Redactor::new(),
            causes: KnownCauses::default(),
        };
        BehaviorHostBuilder { behaviors: Vec::new(), packs: Vec::new(), means }
    }

    /// Serves the behaviours in their own tasks until the returned [`Serving`] is stopped or dropped.
    #[must_use = "what serves is stopped when this is dropped"]
    pub fn serve(self) -> Serving {
        let stop = CancellationToken::new();
        let (log, clock) = (Arc::clone(&self.means.log), Arc::clone(&self.means.clock));
        let mut subscriptions = Vec::new();
        for (behavior, grants) in self.behaviors {
            let (progress, watched) = StatusSender::new();
            let name: Arc<str> = behavior.name().into();
            let granted = (Arc::clone(&behavior), grants);
            let serve = Serve::new(granted, Arc::clone(&self.means), progress, stop.clone());
            let task = tokio::spawn(self.means.clock.track(Box::pin(serve.run())));
            subscriptions.push(Served { name, behavior, task, standing: watched });
        }
        Serving::new(log, clock, stop, subscriptions)
    }

    /// Delivers one event again, whether or not it was delivered before, and records the result.
    ///
    /// The event must match the behaviour's pattern, or have been delivered under an earlier pattern. The position of
    /// the subscription does not change.
    ///
    /// # Errors
    ///
    /// [`RedeliverError`]; a delivery that fails is not an error. If another host serves the subscription, the error
    /// contains [`LogError::Claimed`](backstop_event_log::LogError).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the delivery; its end is not recorded.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use backstop_behaviors::{BehaviorHost, behavior};
    /// use backstop_event_log::MemoryLog;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let told = behavior("tell", "run.failed".parse()?, |_, _| async { Ok(()) });
    /// let host = BehaviorHost::builder(Arc::new(MemoryLog::new())).behavior(told).build()?;
    /// let error = host.redeliver("tell/run_1/7").await.err();
    /// assert_eq!(error.map(|error| error.to_string()).as_deref(), Some("there is no delivery `tell/run_1/7`"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn redeliver(&self, id: &str) -> Result<Redelivered, RedeliverError> {
        let (name, run, seq) = read_delivery_id(id)?;
        let behavior = self.behaviors.iter().find(|(behavior, _)| behavior.name() == name);
        let behavior = behavior.ok_or(RedeliverError::UnknownBehavior(name))?;
        redeliver(behavior, &self.means, (id, &run, seq)).await
    }
}

impl BehaviorHostBuilder {
    /// Adds a behaviour.
    pub fn behavior(self, behavior: impl Behavior + 'static) -> Self {
        self.shared_behavior(Arc::new(behavior))
    }

    /// Adds a shared behaviour.
    pub fn shared_behavior(mut self, behavior: Arc<dyn Behavior>) -> Self {
        self.behaviors.push((behavior, Arc::default()));
        self
    }

    /// Adds the behaviours of a pack, with the pack's grants in addition to the host's.
    pub fn pack(mut self, pack: Pack) -> Self {
        self.packs.push(pack);
        self
    }

    /// Grants a capability to all behaviours: `operator:dispatch`, `run:signal`, `run:reopen` or `state:write`.
    pub fn grant(mut self, capability: impl Into<String>) -> Self {
        self.means.grants.push(capability.into());
        self
    }

    /// Lets behaviours dispatch through this orchestrator.
    pub fn orchestrator(mut self, orchestrator: Arc<dyn Orchestrator>) -> Self {
        self.means.orchestrator = Some(orchestrator);
        self
    }

    /// Sets the budget of each run that a behaviour dispatches.
    pub fn allowance(mut self, allowance: Allowance) -> Self {
        self.means.allowance = Some(allowance);
        self
    }

    /// Lets behaviours reopen runs of this agent.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.means.agents.push(agent);
        self
    }

    /// Lets behaviours use this state store.
    pub fn state_store(mut self, store: Arc<dyn StateStore>) -> Self {
        self.means.state = Some(store);
        self
    }

    /// Sets the redactor that removes secrets from recorded failures.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.means.redactor = redactor;
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.means.clock = clock;
        self
    }

    /// Builds the host.
    ///
    /// # Errors
    ///
    /// [`HostError`] if the name of a behaviour is invalid, two behaviours have the same name, or a pack is loaded
    /// twice.
    pub fn build(mut self) -> Result<BehaviorHost, HostError> {
        Pack::check_all(&self.packs)?;
        for pack in &self.packs {
            let grants: Arc<[String]> = pack.grants().into();
            let brought = collect_behaviors(pack).into_iter();
            self.behaviors.extend(brought.map(|behavior| (behavior, Arc::clone(&grants))));
        }
        for (place, (behavior, _)) in self.behaviors.iter().enumerate() {
            let name = behavior.name();
            check_behavior_name(name)?;
            if self.behaviors[..place].iter().any(|(other, _)| other.name() == name) {
                return Err(HostError::Duplicate(name.to_owned()));
            }
        }
        Ok(BehaviorHost { behaviors: self.behaviors, means: Arc::new(self.means) })
    }
}

impl fmt::Debug for BehaviorHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.behaviors.iter().map(|(behavior, _)| behavior.name()).collect();
        f.debug_struct("BehaviorHost").field("behaviors", &names).finish_non_exhaustive()
    }
}
