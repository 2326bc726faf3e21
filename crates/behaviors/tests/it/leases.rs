//! Deliveries on a server that several processes share, under their leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_behaviors::{FnBehavior, behavior};
use backstop_event_log::EventLog;
use backstop_store_postgres::{Database, Options};
use backstop_testkit::PostgresServer;
use tokio::sync::Semaphore;

use super::{host, opened, settled, short_while, warn};

/// A behaviour whose deliveries each wait for a permit.
#[derive(Clone)]
struct Gate {
    begun: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        Self { begun: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn behavior(&self) -> FnBehavior {
        let gate = self.clone();
        behavior("b", "warning".parse().unwrap(), move |_, _| {
            let gate = gate.clone();
            async move {
                gate.begun.fetch_add(1, Ordering::SeqCst);
                gate.open.acquire().await.unwrap().forget();
                Ok(())
            }
        })
    }
}

async fn open(url: &str) -> (Database, Arc<dyn EventLog>) {
    let options = Options::new(url).unwrap().connections(3);
    let database = Database::connect_with(options).await.unwrap();
    let log = Arc::new(database.log());
    (database, log)
}

/// Spec: J2, X2. A process that leaves begins no delivery, and waits until what it has made is recorded: another host
/// does not make it again.
#[tokio::test(flavor = "multi_thread")]
async fn process_that_leaves_begins_no_delivery() {
    let Some(server) = PostgresServer::shared() else { return };
    let url = server.database().await;
    let ((first, log), gate) = (open(&url).await, Gate::new());
    let leaving = host(&log).behavior(gate.behavior()).build().unwrap().serve();
    opened(&log, &["b"]).await;
    let (second, other) = open(&url).await;
    warn(&other, "run_1", 1).await;
    while gate.begun() == 0 {
        short_while().await;
    }
    let database = first.clone();
    let left = tokio::spawn(async move { database.leave(Duration::from_secs(60)).await });
    short_while().await;
    warn(&other, "run_2", 2).await;
    for _ in 0..50 {
        short_while().await;
    }
    assert_eq!(gate.begun(), 1, "nothing is begun by what leaves");
    assert!(!left.is_finished(), "it waits for what is at work");
    gate.open.add_permits(1);
    assert!(left.await.unwrap(), "all has come to rest");
    leaving.stop().await;
    first.close().await;

    gate.open.add_permits(10);
    let next = host(&other).behavior(gate.behavior()).build().unwrap().serve();
    while gate.begun() < 3 {
        short_while().await;
    }
    settled(&next).await;
    assert_eq!(gate.begun(), 3, "each was made once");
    next.stop().await;
    second.close().await;
}
