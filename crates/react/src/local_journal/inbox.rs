//! What comes to a run from outside, through its log.

use std::collections::BTreeSet;
use std::sync::Arc;

use backstop_event_log::{EventLog, InboxMessage, InboxWatch, LogError};
use layer0::id::RunId;

/// Tells the rows of a run's inbox, each once.
pub(super) struct Inbox {
    log: Arc<dyn EventLog>,
    run: RunId,
    watch: InboxWatch,
    /// Was there a change that was not read yet?
    changed: bool,
    /// The rows that were told; they are gone once they are recorded.
    told: BTreeSet<u64>,
}

impl Inbox {
    pub(super) fn new(log: &Arc<dyn EventLog>, run: &RunId) -> Self {
        let watch = log.watch_inbox(run);
        let (log, run) = (Arc::clone(log), run.clone());
        Self { log, run, watch, changed: false, told: BTreeSet::new() }
    }

    /// Waits for rows that were not told.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Vec<InboxMessage> {
        loop {
            if !self.changed {
                self.watch.changed().await;
                self.changed = true;
            }
            match self.read().await {
                Ok(messages) => {
                    self.changed = false;
                    if !messages.is_empty() {
                        return messages;
                    }
                }
                // A healthy run does not end because its inbox cannot be read just now.
                Err(error) => {
                    tracing::warn!(%error, "the inbox cannot be read; it is looked at again");
                    self.watch.changed().await;
                }
            }
        }
    }

    /// Reads the rows that were not told.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn read(&mut self) -> Result<Vec<InboxMessage>, LogError> {
        let mut messages = self.log.inbox(&self.run).await?;
        messages.retain(|message| !self.told.contains(&message.id));
        self.told.extend(messages.iter().map(|message| message.id));
        Ok(messages)
    }
}
