use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use layer0::id::RunId;

use crate::{EventLog, InboxMessage, InboxWatch, LogError};

type Reading = Pin<Box<dyn Future<Output = Result<Vec<InboxMessage>, LogError>> + Send>>;

/// Returns each row of a run's inbox once, to the run's writer, which removes each row in the append that records it.
pub struct InboxReader {
    log: Arc<dyn EventLog>,
    run: RunId,
    watch: InboxWatch,
    /// A read in progress. It is kept while the run does other things: in a run with quick steps, a read that restarts
    /// at each step would never end.
    reading: Option<Reading>,
    /// The rows already returned; they are removed from the inbox once they are recorded.
    told: BTreeSet<u64>,
}

impl InboxReader {
    /// Creates a reader that starts with the rows already in the inbox.
    pub fn new(log: &Arc<dyn EventLog>, run: &RunId) -> Self {
        let watch = log.watch_inbox(run);
        let (log, run) = (Arc::clone(log), run.clone());
        Self { log, run, watch, reading: None, told: BTreeSet::new() }
    }

    /// Waits for new rows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Vec<InboxMessage> {
        loop {
            if self.reading.is_none() {
                self.watch.wait_for_change().await;
            }
            let (log, run) = (&self.log, &self.run);
            let read = self.reading.get_or_insert_with(|| {
                let (log, run) = (Arc::clone(log), run.clone());
                Box::pin(async move { log.inbox(&run).await })
            });
            let read = read.await;
            self.reading = None;
            match read.map(|messages| self.untold(messages)) {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => return messages,
                // A temporary error of the inbox does not end a healthy run.
                Err(error) => {
                    tracing::warn!(%error, "the inbox cannot be read; it is looked at again");
                }
            }
        }
    }

    /// Reads the new rows, without waiting.
    ///
    /// # Errors
    ///
    /// As [`Inbox::inbox`](crate::Inbox::inbox).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn read(&mut self) -> Result<Vec<InboxMessage>, LogError> {
        let messages = self.log.inbox(&self.run).await?;
        Ok(self.untold(messages))
    }

    fn untold(&mut self, mut messages: Vec<InboxMessage>) -> Vec<InboxMessage> {
        messages.retain(|message| self.told.insert(message.id));
        messages
    }
}

impl fmt::Debug for InboxReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxReader").field("run", &self.run).finish_non_exhaustive()
    }
}
