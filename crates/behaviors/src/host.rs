//! What serves behaviours.

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
use crate::pack::behaviors_of;
use crate::redeliver::{RedeliverError, Redelivered, redeliver};
use crate::serving::{Served, Serving};
use crate::subscription::{Progressing, Serve};

/// Delivers events of a log to behaviours; made by [`BehaviorHost::builder`].
///
/// One host at a time has a subscription, by a claim as for runs: others on the same log, in whichever process,
/// wait, and the next one takes it over when that one ends or dies.
pub struct BehaviorHost {
    behaviors: Vec<Granted>,
    means: Arc<Means>,
}

/// A behaviour, with what its pack grants it.
type Granted = (Arc<dyn Behavior>, Arc<[String]>);

/// Puts a [`BehaviorHost`] together.
#[must_use = "a host is made by `build`"]
pub struct BehaviorHostBuilder {
    behaviors: Vec<Granted>,
    packs: Vec<Pack>,
    means: Means,
}

/// Says why a host cannot be made.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// There are two behaviours of this name.
    ///
    /// Retry: never. Effect: none.
    #[error("there is already a behaviour named `{0}`")]
    Duplicate(String),
    /// A behaviour cannot be called so.
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
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
        }
    }
}

impl BehaviorHost {
    /// Begins a host for a log.
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

    /// Serves the behaviours in tasks of their own, until what is returned is stopped or dropped.
    #[must_use = "what serves is stopped when this is dropped"]
    pub fn serve(self) -> Serving {
        let stop = CancellationToken::new();
        let (log, clock) = (Arc::clone(&self.means.log), Arc::clone(&self.means.clock));
        let mut subscriptions = Vec::new();
        for (behavior, grants) in self.behaviors {
            let (progress, watched) = Progressing::new();
            let name: Arc<str> = behavior.name().into();
            let granted = (Arc::clone(&behavior), grants);
            let serve = Serve::new(granted, Arc::clone(&self.means), progress, stop.clone());
            let task = tokio::spawn(self.means.clock.track(Box::pin(serve.run())));
            subscriptions.push(Served { name, behavior, task, standing: watched });
        }
        Serving::new(log, clock, stop, subscriptions)
    }

    /// Delivers one event again, whether it was delivered before or not, and records what comes of it. The event has to
    /// be one that the pattern of the behaviour matches, or that was delivered under an earlier pattern. The
    /// subscription is not moved.
    ///
    /// # Errors
    ///
    /// [`RedeliverError`]; that the delivery failed is none. [`LogError::Claimed`](backstop_event_log::LogError)
    /// is inside when another host serves the subscription.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the delivery, and its end is not recorded.
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

    /// Adds a behaviour that is shared.
    pub fn shared_behavior(mut self, behavior: Arc<dyn Behavior>) -> Self {
        self.behaviors.push((behavior, Arc::default()));
        self
    }

    /// Adds the behaviours of a pack, which may do what the pack grants beside what the host does.
    pub fn pack(mut self, pack: Pack) -> Self {
        self.packs.push(pack);
        self
    }

    /// Grants all behaviours a capability: `operator:dispatch`, `run:signal`, `run:reopen` or `state:write`.
    pub fn grant(mut self, capability: impl Into<String>) -> Self {
        self.means.grants.push(capability.into());
        self
    }

    /// Lets behaviours dispatch through this orchestrator.
    pub fn orchestrator(mut self, orchestrator: Arc<dyn Orchestrator>) -> Self {
        self.means.orchestrator = Some(orchestrator);
        self
    }

    /// Bounds what each run may use that a behaviour dispatches.
    pub fn allowance(mut self, allowance: Allowance) -> Self {
        self.means.allowance = Some(allowance);
        self
    }

    /// Lets behaviours reopen runs of this agent.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.means.agents.push(agent);
        self
    }

    /// Lets behaviours keep state in this store.
    pub fn state_store(mut self, store: Arc<dyn StateStore>) -> Self {
        self.means.state = Some(store);
        self
    }

    /// Takes out of what is recorded of failures what this redactor knows to be secret.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.means.redactor = redactor;
        self
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.means.clock = clock;
        self
    }

    /// Makes the host.
    ///
    /// # Errors
    ///
    /// [`HostError`], when a behaviour cannot be called what it is, two have one name, or a pack is loaded twice.
    pub fn build(mut self) -> Result<BehaviorHost, HostError> {
        Pack::check_all(&self.packs)?;
        for pack in &self.packs {
            let grants: Arc<[String]> = pack.grants().into();
            let brought = behaviors_of(pack).into_iter();
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
