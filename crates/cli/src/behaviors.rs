//! The behaviours of agent files.

mod failure_text;
mod program;
mod signature;
mod webhook;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::store::AnyDatabase;
use async_trait::async_trait;
use backstop_behaviors::{
    Behavior, BehaviorContext, BehaviorError, BehaviorHost, Delivery, Serving, Start,
};
use backstop_config::{
    AgentFile, BehaviorAction, BehaviorStart, BehaviorTable, ConfigError, WebhookTable,
};
use backstop_event_log::Patterns;
use backstop_redact::Redactor;
use layer0::id::RunId;

use self::program::CommandAction;
pub(crate) use self::signature::SIGNING_KEY_PREFIX;
use self::signature::SigningKey;
use self::webhook::Webhook;
use crate::assemble::{self, parent_folder};
use crate::exit::CliError;
use crate::output::note;
use crate::secrets::build_process_redactor;

/// Time for which a command waits at its end for pending deliveries.
const SETTLE: Duration = Duration::from_secs(10);

/// The served behaviours of an agent file while a command runs; empty if there are none.
#[derive(Default)]
pub(crate) struct Behaviors(Option<Serving>);

/// A `[[behavior]]` table, ready to receive events.
struct FileBehavior {
    table: BehaviorTable,
    action: Action,
}

enum Action {
    Command(CommandAction),
    Url(Webhook),
}

impl Behaviors {
    /// Serves the behaviours that no other host serves, before the first event for them.
    pub(crate) async fn serve(
        behaviors: Vec<Arc<dyn Behavior>>,
        database: &AnyDatabase,
    ) -> Result<Self, CliError> {
        if behaviors.is_empty() {
            return Ok(Self(None));
        }
        let serving = host(database, behaviors)?.serve();
        serving.wait_for_claims().await;
        Ok(Self(Some(serving)))
    }

    /// Waits up to `SETTLE` for the deliveries of these runs and their consequences, then stops.
    pub(crate) async fn end(self, runs: &[RunId]) {
        let Some(serving) = &self.0 else { return };
        let is_settled = serving.settle_runs(runs, SETTLE).await;
        self.stop(is_settled).await;
    }

    /// Waits and stops as [`Behaviors::end`] does, for all runs of the store.
    pub(crate) async fn end_of_all(self) {
        let Some(serving) = &self.0 else { return };
        let is_settled = serving.settle(SETTLE).await;
        self.stop(is_settled).await;
    }

    async fn stop(self, is_settled: bool) {
        let Some(serving) = self.0 else { return };
        if !is_settled {
            note(&format!(
                "not all behaviours were told in {} seconds; what is left is delivered when they are served again",
                SETTLE.as_secs()
            ));
        }
        serving.stop().await;
    }
}

/// Builds the host of behaviours on the log of a store.
pub(crate) fn host(
    database: &AnyDatabase,
    behaviors: Vec<Arc<dyn Behavior>>,
) -> Result<BehaviorHost, CliError> {
    let host = BehaviorHost::builder(database.log()).redactor(build_process_redactor());
    let host = behaviors.into_iter().fold(host, |host, behavior| host.shared_behavior(behavior));
    host.build().map_err(CliError::usage)
}

/// Builds the behaviours of a file.
pub(crate) fn read_behaviors(
    file: &AgentFile,
    path: &Path,
) -> Result<Vec<Arc<dyn Behavior>>, CliError> {
    let redactor = assemble::redactor(file, path);
    let made = |table: &BehaviorTable| {
        let redactor = redactor.clone();
        let action = match table.action() {
            BehaviorAction::Command(command) => {
                let (folder, variables) = (parent_folder(path), assemble::usual_variables());
                Action::Command(CommandAction::new(command, folder, variables, redactor))
            }
            BehaviorAction::Url(table) => Action::Url(webhook(table, path, redactor)?),
            _ => return Err(CliError::usage("this kind of behaviour is not known")),
        };
        Ok(Arc::new(FileBehavior { table: table.clone(), action }) as Arc<dyn Behavior>)
    };
    file.behaviors.iter().map(made).collect()
}

/// Builds a webhook with the credentials that its table refers to.
fn webhook(table: &WebhookTable, path: &Path, redactor: Redactor) -> Result<Webhook, CliError> {
    let folder = parent_folder(path);
    let mut webhook = Webhook::new(table.url.clone(), redactor)?;
    for (name, value) in &table.headers {
        let text = assemble::resolve_text(value, path, folder)?;
        webhook = webhook.header(name, &text).ok_or_else(|| {
            let what =
                format!("header `{name}` of a behaviour holds a character that no header can");
            ConfigError::new(path, what).with_hint("write visible ASCII characters")
        })?;
    }
    if let Some(key) = &table.signing_key {
        let key = assemble::read_secret(key, path, folder)?;
        let key = SigningKey::new(&key).ok_or_else(|| {
            let what = "`signing_key` of a behaviour is empty, or no Base64 behind `whsec_`";
            ConfigError::new(path, what)
                .with_hint("32 random bytes: `openssl rand -base64 32`, behind `whsec_`")
        })?;
        webhook = webhook.signed_with(key);
    }
    Ok(webhook)
}

#[async_trait]
impl Behavior for FileBehavior {
    fn name(&self) -> &str {
        self.table.name()
    }

    fn patterns(&self) -> &Patterns {
        self.table.patterns()
    }

    fn start(&self) -> Start {
        match self.table.start() {
            BehaviorStart::Start => Start::Start,
            _ => Start::Now,
        }
    }

    fn timeout(&self) -> Duration {
        self.table.timeout()
    }

    async fn on(&self, delivery: &Delivery, _: &BehaviorContext) -> Result<(), BehaviorError> {
        let json = serde_json::to_string(delivery).map_err(BehaviorError::other)?;
        match &self.action {
            Action::Command(command) => Ok(command.tell(&json).await?),
            Action::Url(webhook) => Ok(webhook.tell(&delivery.id, json).await?),
        }
    }
}
