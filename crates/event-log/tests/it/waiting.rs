//! What a run's process waits for: its lease, and the rows of its inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use backstop_event_log::{
    ActionGuard, Claim, EventWatches, InboxReader, InboxRequest, InboxWatches, Lease, begin_work,
    while_it_lasts,
};
use layer0::event::Warning;
use layer0::id::RunId;

use crate::recording::{at, memory, record, started};

/// A lease that lets work start after it was asked so often.
#[derive(Default)]
struct Slow {
    refusals: AtomicU32,
    is_over: bool,
    /// How often work was registered, and its guards dropped.
    guards: Arc<[AtomicU32; 2]>,
}

impl Slow {
    fn guards(&self) -> [u32; 2] {
        [0, 1].map(|at: usize| self.guards[at].load(Ordering::Relaxed))
    }
}

struct Registered(Arc<[AtomicU32; 2]>);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Lease for Slow {
    fn may_start(&self) -> bool {
        let left = self.refusals.load(Ordering::Relaxed);
        self.refusals.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    async fn until_may_start(&self) {}

    async fn wait_for_end(&self) {
        if !self.is_over {
            std::future::pending::<()>().await;
        }
    }

    fn at_work(&self) -> Option<ActionGuard> {
        self.guards[0].fetch_add(1, Ordering::Relaxed);
        Some(ActionGuard::new(Registered(Arc::clone(&self.guards))))
    }
}

/// Spec: J2. What is registered too late does not start, and is not at work.
#[tokio::test]
async fn work_begins_only_under_the_lease() {
    let lease = Slow { refusals: 2.into(), ..Slow::default() };
    let guard = begin_work(&lease).await;
    assert!(guard.is_some());
    assert_eq!(lease.guards(), [3, 2], "two of three were too late");
    drop(guard);
    assert_eq!(lease.guards(), [3, 3]);
}

/// Spec: J2
#[tokio::test]
async fn work_stops_with_the_lease() {
    assert_eq!(while_it_lasts(&Slow::default(), async { 1 }).await, Some(1));
    let over = Slow { is_over: true, ..Slow::default() };
    assert_eq!(while_it_lasts(&over, async { 1 }).await, None);
    let error = over.loss(&"run_1".into());
    assert_eq!(error.to_string(), "the lease of this process on run `run_1` has ended");
    assert!(error.is_retryable());
}

/// Spec: J2
#[test]
fn claim_tells_its_lease_and_its_past() {
    let claim = Claim::new(7, ());
    assert!(claim.lease().is_none() && !claim.is_takeover());
    let claim = claim.under(Arc::new(Slow::default())).takeover();
    assert!(claim.lease().is_some() && claim.is_takeover());
    assert_eq!(claim.epoch(), 7);
}

/// Spec: A1, O2. Each row is given once, until it is recorded.
#[tokio::test]
async fn rows_of_an_inbox_are_given_once() {
    let log = memory();
    let run = RunId::from("run_1");
    let mut writer = record(&log, "run_1", [started("s").into()]).await;
    let send = async |text: &str| {
        let request = InboxRequest::Input { run: "run_1".into(), text: text.into() };
        assert!(log.send(request, "ops", at(1)).await.unwrap());
    };
    send("before").await;
    let mut reader = InboxReader::new(&log, &run);
    let texts = |messages: Vec<backstop_event_log::InboxMessage>| -> Vec<String> {
        let text = |request| match request {
            InboxRequest::Input { text, .. } => text.to_string(),
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(|message| text(message.request)).collect()
    };
    assert_eq!(texts(reader.next().await), ["before"]);
    send("later").await;
    assert_eq!(texts(reader.read().await.unwrap()), ["later"]);
    assert_eq!(texts(reader.read().await.unwrap()), [""; 0]);
    let mut next = Box::pin(reader.next());
    let mut poll = || next.as_mut().poll(&mut Context::from_waker(Waker::noop())).map(texts);
    assert_eq!(poll(), Poll::Pending, "it was told of both");
    send("third").await;
    assert_eq!(poll(), Poll::Ready(vec!["third".to_owned()]));
    let ids: Vec<u64> = log.inbox(&run).await.unwrap().iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), 3, "they wait until they are recorded");
    writer.take(ids[0]);
    crate::recording::stage(&mut writer, 2, Warning::new("recorded"));
    writer.commit().await.unwrap();
    assert_eq!(log.inbox(&run).await.unwrap().len(), 2);
}

/// Spec: D14
#[test]
fn watch_is_rung_for_each_watcher() {
    let watches = EventWatches::default();
    assert!(watches.is_empty());
    let [mut one, mut other] = [watches.watch(), watches.watch()];
    let poll = |watch: &mut backstop_event_log::EventWatch| {
        watch.poll_changed(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert!(poll(&mut one) && poll(&mut other), "earlier events count");
    assert!(!poll(&mut one) && !poll(&mut other));
    watches.ring();
    assert!(poll(&mut one) && !poll(&mut one) && poll(&mut other));
    drop(one);
    assert!(!watches.is_empty());
    watches.ring();
    assert!(poll(&mut other));
    drop(other);
    assert!(watches.is_empty());
}

/// Spec: A1
#[tokio::test]
async fn ring_wakes_a_waiting_task() {
    let (watches, run) = (InboxWatches::default(), RunId::from("run_1"));
    let mut watch = watches.watch(&run);
    watch.wait_for_change().await;
    let waiting = tokio::spawn(async move { watch.wait_for_change().await });
    tokio::task::yield_now().await;
    watches.ring(&"run_2".into());
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    watches.ring(&run);
    waiting.await.unwrap();
}
