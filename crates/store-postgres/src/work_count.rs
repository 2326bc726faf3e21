use tokio::sync::watch;

/// Counts what is at work in this process that acts on the world. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct WorkCount(watch::Sender<usize>);

impl Default for WorkCount {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl WorkCount {
    /// Counts something, until what is returned is dropped.
    pub(crate) fn enter(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    /// Waits until nothing is at work.
    pub(crate) async fn none(&self) {
        // The sender is in `self`: it waits for the count alone.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

pub(crate) struct Counted(WorkCount);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
