//! Owners of runs: processes that have the database open, as long as they live.
//!
//! An owner is a row with a lease, which a dedicated thread renews, and an advisory lock that the server releases when
//! the thread's connection ends, so that the death of a process is known at once. Behind a proxy that shares
//! connections there is no such lock, and only the lease counts.

mod keeper;

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::Claims;
use tokio::sync::oneshot;

use self::keeper::Keeper;
use crate::connect::Connect;
use crate::fault::Fault;
use crate::lease::OwnerLease;

/// The owner of this open database.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: Arc<str>,
    pub(crate) lease: Arc<OwnerLease>,
    /// Stops the thread when dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Owner {
    /// Creates an owner, with a lease that a thread renews.
    pub(crate) async fn start(
        connect: Connect,
        lasts: Duration,
        claims: Claims,
    ) -> Result<Self, Fault> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(Fault::from_other)?;
        let id: Arc<str> =
            random[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        let [_, _, _, _, _, _, _, _, lock @ ..] = random;
        let lease = Arc::new(OwnerLease::new(lasts, !connect.is_shared()));
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let keeper = Keeper {
            id: Arc::clone(&id),
            lock: i64::from_be_bytes(lock),
            lease: Arc::clone(&lease),
            claims,
            connect,
        };
        let thread = std::thread::Builder::new().name("backstop-lease".into());
        let thread = thread.spawn(move || keeper.run(ready, stopped)).map_err(Fault::from_other)?;
        let owner = Self { id, lease, stop: Some(stop), thread: Some(thread) };
        match is_ready.await {
            Ok(Ok(())) => Ok(owner),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::Failed("the thread of the lease is gone".into())),
        }
    }

    /// Ends this owner, so that it can claim no run any more.
    pub(crate) async fn leave(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}
