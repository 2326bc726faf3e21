//! Checks of the queue.

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::RunState;
use backstop_store_postgres::{Queue, QueueError, QueueFilter, QueueLimit, QueueState};
use backstop_worker::Worker;
use layer0::failure::Failure;
use layer0::operator::Task;

use crate::place::{Place, begin, connect, direct_and_pooled_checks};
use crate::support::{AtWork, Gate, answering, asking, calling, is_in, open, put, summary};

direct_and_pooled_checks![
    key_stands_for_one_run,
    key_outlives_the_queue,
    transaction_of_the_caller_decides,
    run_that_waits_can_be_taken_out,
    run_is_not_started_before_its_time,
    what_cannot_be_run_is_refused,
    other_queues_and_agents_are_left,
    ended_run_leaves_the_queue_with_its_end,
    unreadable_row_holds_up_no_other,
    cancelled_run_frees_its_key,
    runs_of_other_queues_are_left_to_their_workers,
];

/// Spec: J2w
async fn key_stands_for_one_run(place: Place) {
    let (database, url) = place.fresh().await;
    let queue = database.queue();
    let request = asking("agent").key("mail-1").queue("slow");
    let first = queue.enqueue(&request).await.unwrap();
    assert!(first.is_new);
    // Also from another process, and at the same time.
    let others = (0..8).map(|_| {
        let (request, url) = (request.clone(), url.clone());
        tokio::spawn(async move { open(&url).await.queue().enqueue(&request).await.unwrap() })
    });
    for other in others.collect::<Vec<_>>() {
        let other = other.await.unwrap();
        assert_eq!((other.run, other.is_new), (first.run.clone(), false));
    }
    let mut another = request.clone();
    another.task = Task::text("something else");
    let error = queue.enqueue(&another).await.unwrap_err();
    assert!(matches!(error, QueueError::KeyReused { .. }), "{error}");
    assert_eq!(error.code(), "input.key_reused");
    let told = error.to_string();
    assert_eq!(told, "key `mail-1` of `agent` stands for another input already");
    let elsewhere = request.clone().session("s").label("tenant", "acme");
    let told = queue.enqueue(&elsewhere).await.unwrap_err().to_string();
    assert!(told.ends_with("stands for another session and other labels already"), "{told}");
    // Another agent has keys of its own.
    another.agent = "other".to_owned();
    assert!(queue.enqueue(&another).await.unwrap().is_new);
    let listed = queue.list(&QueueFilter::new().queue("slow")).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[0].run, listed[0].state), (&first.run, QueueState::Queued));
    assert!(queue.list(&QueueFilter::new().queue("default")).await.unwrap().is_empty());
}

/// Spec: J2w. The key is kept as long as the run, also when that has left the queue.
async fn key_outlives_the_queue(place: Place) {
    let (database, url) = place.fresh().await;
    let request = asking("agent").key("mail-1");
    let first = put(&database, &request).await;
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(answering(&other, "agent")));
    is_in(&database, &first, RunState::Finished).await;
    worker.stop().await;
    database.queue().clean().await.unwrap();
    assert!(database.queue().list(&QueueFilter::new()).await.unwrap().is_empty());
    assert_eq!(put(&database, &request).await, first);
}

/// Spec: J2w
async fn transaction_of_the_caller_decides(place: Place) {
    let (database, url) = place.fresh().await;
    let mut connection = connect(&url).await;
    let mut transaction = begin(&mut connection).await;
    let request = asking("agent").key("order-1");
    Queue::enqueue_in(&mut transaction, &request).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(database.queue().list(&QueueFilter::new()).await.unwrap().is_empty());
    let mut transaction = begin(&mut connection).await;
    let put = Queue::enqueue_in(&mut transaction, &request).await.unwrap();
    assert!(put.is_new, "the key went with the transaction");
    transaction.commit().await.unwrap();
    let listed = database.queue().list(&QueueFilter::new()).await.unwrap();
    assert_eq!(listed[0].run, put.run);
}

/// Spec: J2w
async fn run_that_waits_can_be_taken_out(place: Place) {
    let (database, url) = place.fresh().await;
    let run = put(&database, &asking("agent")).await;
    assert!(database.queue().cancel(&run).await.unwrap());
    assert!(!database.queue().cancel(&run).await.unwrap());
    let kept = put(&database, &asking("agent")).await;
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(answering(&other, "agent")));
    is_in(&database, &kept, RunState::Finished).await;
    assert!(!database.queue().cancel(&kept).await.unwrap());
    assert!(summary(&database, &run).await.is_none());
    worker.stop().await;
}

/// Spec: J2w
async fn run_is_not_started_before_its_time(place: Place) {
    let (database, url) = place.fresh().await;
    let time = SystemClock.now().after(Duration::from_millis(1_500));
    let late = put(&database, &asking("agent").not_before(time)).await;
    let soon = put(&database, &asking("agent")).await;
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(answering(&other, "agent")));
    is_in(&database, &soon, RunState::Finished).await;
    let late = is_in(&database, &late, RunState::Finished).await;
    assert!(late.started_at >= time, "{late:?}");
    worker.stop().await;
}

async fn what_cannot_be_run_is_refused(place: Place) {
    let (database, url) = place.fresh().await;
    for (request, part) in [
        (asking(""), "agent"),
        (asking("agent").queue("\n"), "queue"),
        (asking("agent").session(""), "session"),
        (asking("agent").key(""), "key"),
        (asking("agent").key("k".repeat(257)), "key"),
    ] {
        let error = database.queue().enqueue(&request).await.unwrap_err();
        assert!(matches!(error, QueueError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    // A run that cannot start stays in the queue with the reason; it does not delay the runs after it.
    let bad = put(&database, &asking("agent").session("s").label("", "x")).await;
    let good = put(&database, &asking("agent").session("s")).await;
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(answering(&other, "agent")));
    is_in(&database, &good, RunState::Finished).await;
    let listed = database.queue().list(&QueueFilter::new()).await.unwrap();
    let listed = listed.iter().find(|entry| entry.run == bad).unwrap();
    assert_eq!(listed.state, QueueState::Refused);
    let refusal = listed.refused.as_ref().unwrap();
    assert_eq!(refusal.code, "input.invalid", "{refusal:?}");
    assert!(database.queue().cancel(&bad).await.unwrap());
    worker.stop().await;
}

/// Spec: J2w
async fn other_queues_and_agents_are_left(place: Place) {
    let (database, url) = place.fresh().await;
    let other_queue = put(&database, &asking("agent").queue("other")).await;
    let other_agent = put(&database, &asking("elsewhere").queue("mine")).await;
    let mine = put(&database, &asking("agent").queue("mine")).await;
    let other = open(&url).await;
    let builder = Worker::builder(&other).operator(answering(&other, "agent"));
    let worker = AtWork::start(builder.queue(QueueLimit::new("mine")));
    is_in(&database, &mine, RunState::Finished).await;
    worker.stop().await;
    assert!(summary(&database, &other_queue).await.is_none());
    assert!(summary(&database, &other_agent).await.is_none());
}

/// Returns the number of rows in the queue, of any kind.
async fn rows(url: &str) -> i64 {
    let mut connection = connect(url).await;
    let mut transaction = begin(&mut connection).await;
    sqlx::query_scalar("SELECT count(*) FROM backstop.queue")
        .fetch_one(&mut *transaction)
        .await
        .unwrap()
}

async fn execute(url: &str, statement: &'static str) {
    let mut connection = connect(url).await;
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
}

/// Spec: J2w. Nothing is left of a run that is over from which it could begin again once its record is removed. While
/// it is at work, what it was asked stands in its record alone.
async fn ended_run_leaves_the_queue_with_its_end(place: Place) {
    let (database, url) = place.fresh().await;
    let gate = Gate::new();
    let run = put(&database, &asking("agent")).await;
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(calling(&other, gate.again())));
    gate.has_begun(1).await;
    let mut connection = connect(&url).await;
    let mut transaction = begin(&mut connection).await;
    let task: String = sqlx::query_scalar("SELECT task FROM backstop.queue")
        .fetch_one(&mut *transaction)
        .await
        .unwrap();
    assert_eq!(task, "");
    drop(transaction);
    gate.open.add_permits(1);
    is_in(&database, &run, RunState::Finished).await;
    assert_eq!(rows(&url).await, 0, "it went with the append that ended the run");
    database.delete_run(&run).await.unwrap();
    SystemClock.sleep(Duration::from_millis(1_500)).await;
    assert!(summary(&database, &run).await.is_none(), "it does not begin again");
    worker.stop().await;
}

/// Spec: J2w. A person finds it, and can take it out.
async fn unreadable_row_holds_up_no_other(place: Place) {
    let (database, url) = place.fresh().await;
    let broken = put(&database, &asking("agent")).await;
    execute(&url, "UPDATE backstop.queue SET task = 'no JSON'").await;
    let behind = put(&database, &asking("agent")).await;
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(answering(&other, "agent")));
    is_in(&database, &behind, RunState::Finished).await;
    execute(&url, "UPDATE backstop.queue SET refused = refused || 'x'").await;
    let listed = database.queue().list(&QueueFilter::new()).await.unwrap();
    assert_eq!((&listed[0].run, listed[0].state), (&broken, QueueState::Refused));
    assert_eq!(listed[0].refused.as_ref().unwrap().code, "log.unreadable");
    assert!(database.queue().cancel(&broken).await.unwrap());
    worker.stop().await;
}

/// Spec: J2w. A key does not stand for a run that was taken out before it began.
async fn cancelled_run_frees_its_key(place: Place) {
    let (database, _) = place.fresh().await;
    let request = asking("agent").key("mail-1");
    let first = put(&database, &request).await;
    assert!(database.queue().cancel(&first).await.unwrap());
    let again = database.queue().enqueue(&request).await.unwrap();
    assert!(again.is_new && again.run != first, "{again:?}");
}

/// Spec: J2w. The limit of a queue is known to its own workers.
async fn runs_of_other_queues_are_left_to_their_workers(place: Place) {
    let (database, url) = place.fresh().await;
    let gate = Gate::new();
    let run = put(&database, &asking("agent").queue("mail")).await;
    let first = open(&url).await;
    let builder = Worker::builder(&first).operator(calling(&first, gate.again()));
    let worker = AtWork::start(builder.queue(QueueLimit::new("mail")).drain(Duration::ZERO));
    gate.has_begun(1).await;
    worker.stop().await;
    gate.open.add_permits(1);
    let others = open(&url).await;
    let builder = Worker::builder(&others).operator(calling(&others, gate.again()));
    let worker = AtWork::start(builder.queue(QueueLimit::new("other")));
    SystemClock.sleep(Duration::from_millis(1_500)).await;
    assert_eq!(summary(&database, &run).await.unwrap().state, RunState::Running);
    worker.stop().await;
    let own = open(&url).await;
    let builder = Worker::builder(&own).operator(calling(&own, gate.again()));
    let worker = AtWork::start(builder.queue(QueueLimit::new("mail")));
    is_in(&database, &run, RunState::Finished).await;
    worker.stop().await;
}
