//! `[[behavior]]` of an agent file.

use std::collections::BTreeMap;
use std::time::Duration;

use backstop_event_log::Patterns;
use backstop_process::Credential;
use serde::Deserialize;
use url::Url;

use crate::TextOrCredential;
use crate::checked::{at_least_one, texts};

/// Default timeout of a delivery, in milliseconds.
const TIMEOUT_MS: u64 = 30_000;

/// A reaction to events of runs, by a program or a server.
///
/// ```
/// use backstop_config::{AgentFile, BehaviorAction, BehaviorStart};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.toml");
/// std::fs::write(
///     &path,
///     r#"
///     [model]
///     provider = "script"
///     script = "script.toml"
///     [[behavior]]
///     name = "tell ops"
///     on = "run.failed[reason=provider.*]"
///     url = "http://127.0.0.1:9000/hook"
///     "#,
/// )?;
/// let behavior = &AgentFile::read(&path)?.behaviors[0];
/// assert_eq!((behavior.name(), behavior.timeout().as_secs()), ("tell ops", 30));
/// assert_eq!(behavior.patterns().event_types(), ["run.failed"]);
/// assert_eq!(behavior.start(), BehaviorStart::Now);
/// assert!(matches!(behavior.action(), BehaviorAction::Url(hook) if hook.url.port() == Some(9000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct BehaviorTable {
    name: String,
    patterns: Patterns,
    action: BehaviorAction,
    timeout: Duration,
    start: BehaviorStart,
}

/// The receiver of the events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BehaviorAction {
    /// A program with its arguments, which reads the events on its standard input; never empty.
    Command(Vec<String>),
    /// A server, which gets the events by POST.
    Url(WebhookTable),
}

/// A server that receives the events of a behaviour.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookTable {
    /// The address; `http` or `https`, with a host.
    pub url: Url,
    /// Additional headers of each request; credentials are written as references.
    pub headers: BTreeMap<String, TextOrCredential>,
    /// Key that signs each request, as [Standard Webhooks](https://www.standardwebhooks.com) defines it.
    pub signing_key: Option<Credential>,
}

/// The first event of a subscription that is new to the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BehaviorStart {
    /// The first event after the store is served for the first time.
    #[default]
    Now,
    /// The first event of the store.
    Start,
}

/// A table as written in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenBehavior {
    pub(crate) name: String,
    #[serde(deserialize_with = "texts")]
    pub(crate) on: Vec<String>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) url: Option<String>,
    pub(crate) headers: Option<BTreeMap<String, TextOrCredential>>,
    pub(crate) signing_key: Option<String>,
    #[serde(default, deserialize_with = "at_least_one")]
    timeout_ms: Option<u64>,
    #[serde(default)]
    from: BehaviorStart,
}

impl BehaviorTable {
    /// Returns the behaviour of a written table, with its parsed patterns and action.
    pub(crate) fn new(
        written: &WrittenBehavior,
        patterns: Patterns,
        action: BehaviorAction,
    ) -> Self {
        let timeout = Duration::from_millis(written.timeout_ms.unwrap_or(TIMEOUT_MS));
        Self { name: written.name.clone(), patterns, action, timeout, start: written.from }
    }

    /// Returns the name, which is also that of its subscription.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the patterns of its events (`on`).
    #[must_use]
    pub const fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// Returns the receiver: `command` or `url`.
    #[must_use]
    pub const fn action(&self) -> &BehaviorAction {
        &self.action
    }

    /// Returns the receiver for changes, such as to fill in a fetched credential.
    pub const fn action_mut(&mut self) -> &mut BehaviorAction {
        &mut self.action
    }

    /// Returns the timeout of one attempt of a delivery (`timeout_ms`); 30 seconds by default.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the start of a subscription that is new to the store (`from`).
    #[must_use]
    pub const fn start(&self) -> BehaviorStart {
        self.start
    }
}
