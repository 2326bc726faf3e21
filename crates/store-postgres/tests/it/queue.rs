//! Entries of the queue, and workers that take them.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::EventLog;
use backstop_store_postgres::{
    Database, Enqueue, Options, QueueLimit, StartRefusal, UnservedQueue, WorkerRow,
};
use layer0::Timestamp;
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::operator::Task;
use sqlx::PgConnection;

use crate::support::{append, begin, connection, finished, open, server, until};

fn asking(agent: &str, queue: &str) -> Enqueue {
    Enqueue::new(agent, Task::text("go")).queue(queue)
}

/// Spec: J2w. It leaves with the append that ends the run: no worker is there to give it back.
#[tokio::test(flavor = "multi_thread")]
async fn row_leaves_with_the_end_of_the_run() {
    let server = server!();
    let url = server.database().await;
    let (database, mut looking) = (open(&url).await, connection(&url).await);
    let queued = database.queue().enqueue(&asking("demo", "mail")).await.unwrap();
    let mut rows = async || -> Vec<String> {
        let rows = sqlx::query_scalar("SELECT task FROM backstop.queue");
        rows.fetch_all(&mut looking).await.unwrap()
    };
    assert!(rows().await[0].contains("go"));
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, queued.run.as_str(), "s").await;
    assert_eq!(rows().await, [""], "what it was asked stands in its record alone");
    append(&mut writer, finished()).await.unwrap();
    assert_eq!(rows().await, [""; 0]);
    database.close().await;
}

/// Opens a database in which a transaction that is aborted after a deadlock, found in a second, is not retried.
async fn opened(url: &str) -> Database {
    let options = Options::new(url).unwrap().connections(3);
    let database = Database::connect_with(options.patience(Duration::from_millis(900))).await;
    let database = database.unwrap();
    database.queue().take(&[QueueLimit::new("a")], &["demo"], 1, &[]).await.unwrap();
    database
}

async fn waiting_for_queues(looking: &mut PgConnection) -> i64 {
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    sqlx::query_scalar(waiting).fetch_one(looking).await.unwrap()
}

/// Spec: J2w. Each waits for the first queue, and holds no other meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn queues_in_opposite_order_never_deadlock() {
    let server = server!();
    let url = server.database().await;
    let (one, other) = (opened(&url).await, opened(&url).await);
    let (mut holding, mut looking) = (connection(&url).await, connection(&url).await);
    for queue in ["a", "b"] {
        one.queue().enqueue(&asking("demo", queue)).await.unwrap();
    }
    let limits = |queues: [&str; 2]| queues.map(|queue| QueueLimit::new(queue).limit(9)).to_vec();
    let take = |database: &Database, queues| {
        let (queue, limits) = (database.queue(), limits(queues));
        tokio::spawn(async move { queue.take(&limits, &["demo"], 9, &[]).await })
    };
    sqlx::query("SELECT pg_advisory_lock(hashtextextended('backstop queue a', 0))")
        .execute(&mut holding)
        .await
        .unwrap();
    let mut taking = Vec::new();
    for (database, queues) in [(&one, ["a", "b"]), (&other, ["b", "a"])] {
        taking.push(take(database, queues));
        let all = i64::try_from(taking.len()).unwrap();
        until("it waits", async || waiting_for_queues(&mut looking).await == all).await;
    }
    sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut holding).await.unwrap();
    let mut taken = 0;
    for taking in taking {
        taken += taking.await.unwrap().unwrap().len();
    }
    assert_eq!(taken, 2);
    one.close().await;
    other.close().await;
}

async fn unserved(database: &Database) -> Vec<(String, Option<String>, u64, u64)> {
    let unserved = database.queue().list_unserved().await.unwrap();
    let told = |it: UnservedQueue| (it.queue, it.agent, it.runs, it.workers);
    unserved.into_iter().map(told).collect()
}

/// Spec: J2w
#[tokio::test(flavor = "multi_thread")]
async fn waiting_runs_of_no_worker_are_unserved() {
    let server = server!();
    let url = server.database().await;
    let (database, process) = (open(&url).await, open(&url).await);
    let queue = database.queue();
    assert!(unserved(&database).await.is_empty());
    let mut put = Vec::new();
    for (agent, name) in [("demo", "mail"), ("demo", "mail"), ("other", "mail"), ("demo", "post")] {
        put.push(queue.enqueue(&asking(agent, name)).await.unwrap().run);
    }
    let of = |name: &str, agent: Option<&str>, runs, workers| {
        (name.to_owned(), agent.map(ToOwned::to_owned), runs, workers)
    };
    assert_eq!(unserved(&database).await, [of("mail", None, 3, 0), of("post", None, 1, 0)]);

    let worker = |agent: &str, queues: &[&str]| {
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        WorkerRow::new(vec![(agent.to_owned(), "d".to_owned())], queues)
    };
    process.queue().announce(&worker("demo", &["mail", "more"])).await.unwrap();
    let left = [of("mail", Some("other"), 1, 1), of("post", None, 1, 1)];
    assert_eq!(unserved(&database).await, left);
    assert_eq!(queue.unserved_by("mail", "demo").await.unwrap(), None);
    let by_name = queue.unserved_by("mail", "other").await.unwrap().unwrap();
    assert_eq!((by_name.agent.as_deref(), by_name.workers), (Some("other"), 1));
    let by_queue = queue.unserved_by("none", "demo").await.unwrap().unwrap();
    assert_eq!((by_queue.agent, by_queue.workers), (None, 1));

    // A started run and a refused run do not wait for a worker.
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let _writer = begin(&log, put[3].as_str(), "s").await;
    queue.take(&[QueueLimit::new("mail")], &["demo"], 1, &[]).await.unwrap();
    queue.refuse(&put[0], &StartRefusal::new("input.invalid", "no")).await.unwrap();
    assert_eq!(unserved(&database).await, left[..1]);
    process.close().await;
    assert_eq!(unserved(&database).await, [of("mail", None, 2, 0)], "the worker is gone");
    database.close().await;
}

/// Spec: J2w. A queue that always has something leaves the others their share, whatever their names.
#[tokio::test(flavor = "multi_thread")]
async fn busy_queue_starves_no_other() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let queue = database.queue();
    for name in ["a", "b"] {
        for _ in 0..20 {
            queue.enqueue(&asking("demo", name)).await.unwrap();
        }
    }
    queue.enqueue(&asking("demo", "z")).await.unwrap();
    let queues = ["a", "b", "z"].map(QueueLimit::new);
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.extend(queue.take(&queues, &["demo"], 1, &[]).await.unwrap());
    }
    let mut names: Vec<String> = Vec::new();
    let mut looking = connection(&url).await;
    for one in &taken {
        let name = sqlx::query_scalar("SELECT queue FROM backstop.queue WHERE run = $1");
        names.push(name.bind(one.run.as_str()).fetch_one(&mut looking).await.unwrap());
    }
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "z"].map(String::from), "each place goes to another queue");
    // Unused shares of one queue are divided among the others.
    let many = queue.take(&queues, &["demo"], 10, &[]).await.unwrap();
    assert_eq!(many.len(), 10);
    database.close().await;
}

/// Spec: J2w. The order in which they were put in decides only between runs that are due at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_taken_as_they_are_due() {
    let server = server!();
    let database = open(&server.database().await).await;
    let queue = database.queue();
    let put = async |second: i64| {
        let due = asking("demo", "mail").not_before(Timestamp::from_millis(second * 1_000));
        queue.enqueue(&due).await.unwrap().run
    };
    let runs = [put(30).await, put(10).await, put(20).await, put(10).await];
    let take = async |most: usize| -> Vec<RunId> {
        let taken = queue.take(&[QueueLimit::new("mail")], &["demo"], most, &[]).await.unwrap();
        taken.into_iter().map(|taken| taken.run).collect()
    };
    let mut taken = take(1).await;
    taken.extend(take(1).await);
    taken.extend(take(9).await);
    assert_eq!(taken, [1, 3, 2, 0].map(|place| runs[place].clone()));
    database.close().await;
}

/// Spec: J2w
#[tokio::test(flavor = "multi_thread")]
async fn names_and_times_can_be_shown() {
    let server = server!();
    let database = open(&server.database().await).await;
    for name in ["\u{202e}gnp", "mail\u{200b}", ""] {
        let refused = database.queue().enqueue(&asking("demo", name)).await.unwrap_err();
        assert_eq!(refused.code(), "input.invalid", "{name:?}");
    }
    let far = asking("demo", "mail").not_before(Timestamp::from_millis(i64::MAX / 2));
    assert_eq!(database.queue().enqueue(&far).await.unwrap_err().code(), "input.invalid");
    let late = Timestamp::from_millis(253_370_764_799_999);
    database.queue().enqueue(&asking("demo", "mail").not_before(late)).await.unwrap();
    database.close().await;
}

/// Spec: J2. What another client locks is not waited for without end.
#[tokio::test(flavor = "multi_thread")]
async fn lock_of_others_is_told() {
    let server = server!();
    let url = server.database().await;
    let options = Options::new(&url).unwrap().connections(3).lease(Duration::from_secs(3));
    let database = Database::connect_with(options.patience(Duration::from_millis(900))).await;
    let database = database.unwrap();
    let queues = [QueueLimit::new("a")];
    database.queue().take(&queues, &["demo"], 1, &[]).await.unwrap();
    let mut holding = connection(&url).await;
    let lock = "BEGIN; LOCK TABLE backstop.queue IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut holding).await.unwrap();
    let refused = database.queue().take(&queues, &["demo"], 1, &[]).await.unwrap_err();
    assert_eq!(refused.code(), "store.locked");
    drop(holding);
    database.close().await;
}
