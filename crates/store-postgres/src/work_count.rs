use tokio::sync::watch;

/// Number of actions with an effect in progress in this process. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct WorkCount(watch::Sender<usize>);

impl Default for WorkCount {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl WorkCount {
    /// Counts an action until the returned guard is dropped.
    pub(crate) fn enter(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    /// Waits until no action is in progress.
    pub(crate) async fn none(&self) {
        // The sender is in `self`, so that only the count can end the wait.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

pub(crate) struct Counted(WorkCount);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
