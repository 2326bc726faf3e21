//! The cost of a delivery: after many events compared with few, with many subscriptions compared with one, and from an
//! append until the behaviour receives the event.
//!
//! `cargo bench -p backstop-behaviors --bench deliveries`; with `-- --quick` for a short run.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backstop_behaviors::{BehaviorHost, FnBehavior, Serving, Start, behavior};
use backstop_event_log::{Cursor, EventFilter, EventLog, RunWriter, Seed};
use backstop_store_sqlite::{Database, Durability};
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use layer0::Timestamp;
use layer0::event::{Actor, MemoryWrote, Warning};
use layer0::id::RunId;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

struct Effort {
    rounds: usize,
    deliveries: u64,
}

const FULL: Effort = Effort { rounds: 15, deliveries: 1_000 };
const QUICK: Effort = Effort { rounds: 5, deliveries: 200 };

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let runtime = Runtime::new().expect("a runtime can be made");
    let rows = runtime.block_on(async {
        [behind(&effort).await, subscriptions(&effort).await, latency(&effort).await]
    });
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A store with this many events, and as many subscriptions after them.
struct Store {
    _folder: tempfile::TempDir,
    database: Database,
    log: Arc<dyn EventLog>,
    writer: RunWriter,
    /// Receives a message for each delivery.
    heard: mpsc::UnboundedReceiver<()>,
    serving: Option<Serving>,
    subscriptions: u64,
}

impl Store {
    async fn new(events: u64, subscriptions: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("a.db");
        let database = Database::open(path, Durability::Normal).await.expect("a new file opens");
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let mut writer = RunWriter::new(Arc::clone(&log), RunId::from("run_1"));
        for _ in 0..events.div_ceil(100) {
            for _ in 0..100 {
                let event = MemoryWrote::new(1).into();
                writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Memory, None, event);
            }
            drop(writer.commit().await.expect("it is appended"));
        }
        let (tell, heard) = mpsc::unbounded_channel();
        let behaviors = (0..subscriptions).map(|number| telling(&format!("b{number}"), &tell));
        let host = BehaviorHost::builder(Arc::clone(&log));
        let host = behaviors.fold(host, |host, behavior| host.behavior(behavior));
        let serving = host.build().expect("the names are distinct").serve();
        serving.settle(Duration::from_secs(600)).await;
        let serving = Some(serving);
        Self { _folder: folder, database, log, writer, heard, serving, subscriptions }
    }

    /// Appends events in one write, and waits until all are delivered.
    async fn deliver(&mut self, count: u64) -> Duration {
        let began = now();
        for _ in 0..count {
            let event = Warning::new("the disk is nearly full").into();
            self.writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, event);
        }
        drop(self.writer.commit().await.expect("it is appended"));
        for _ in 0..count * self.subscriptions {
            self.heard.recv().await.expect("each is delivered");
        }
        began.elapsed()
    }

    async fn close(mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop().await;
        }
        drop(self.log);
        self.database.close().await;
    }
}

fn telling(name: &str, tell: &mpsc::UnboundedSender<()>) -> FnBehavior {
    let tell = tell.clone();
    let pattern = "warning".parse().expect("it is a pattern");
    behavior(name, pattern, move |_, _| {
        let _is_heard = tell.send(()).is_ok();
        async { Ok(()) }
    })
    .start(Start::Start)
}

/// A delivery after 100,000 events compared with one after 100.
async fn behind(effort: &Effort) -> Row {
    let (mut many, mut few) = (Store::new(100_000, 1).await, Store::new(100, 1).await);
    let (mut taken, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        taken.push(many.deliver(effort.deliveries).await);
        beside.push(few.deliver(effort.deliveries).await);
    }
    many.close().await;
    few.close().await;
    let name = "a delivery behind 100,000 events, to one behind 100";
    Row::new(name, Spread::of(ratios(&taken, &beside)), Goal::AtMost(1.2))
}

/// The time of a delivery with 64 subscriptions compared with one; and the number of deliveries a second.
async fn subscriptions(effort: &Effort) -> Row {
    let (mut many, mut one) = (Store::new(100, 64).await, Store::new(100, 1).await);
    let (mut taken, mut beside) = (Vec::new(), Vec::new());
    let count = effort.deliveries / 10;
    for _ in 0..effort.rounds {
        // The same number of deliveries on both sides.
        taken.push(many.deliver(count).await);
        beside.push(one.deliver(count * 64).await);
    }
    many.close().await;
    one.close().await;
    let name = "a delivery with 64 subscriptions, to one with 1";
    Row::new(name, Spread::of(ratios(&taken, &beside)), Goal::None)
}

/// The time from before an append until its event is delivered, compared with the append and a read of the feed.
async fn latency(effort: &Effort) -> Row {
    let mut store = Store::new(100, 1).await;
    let (mut taken, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds * 20 {
        taken.push(store.deliver(1).await);
        let began = now();
        let event = MemoryWrote::new(1).into();
        store.writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Memory, None, event);
        drop(store.writer.commit().await.expect("it is appended"));
        let filter = EventFilter::new().event_type("warning");
        drop(store.log.read_feed(&filter, &Cursor::now()).await.expect("it can be read"));
        beside.push(began.elapsed());
    }
    store.close().await;
    let name = "from an append until it is delivered, to an append and a look into the feed";
    Row::new(name, Spread::of(ratios(&taken, &beside)), Goal::None)
}
