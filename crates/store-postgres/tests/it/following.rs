//! Followers of all runs: no gap and no repetition, whatever happens to connections and transactions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{
    Cursor, Erasures, EventFeed, EventFilter, EventLog, Inbox, LogError, follow,
};
use layer0::event::Warning;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use crate::support::{append, begin, connection, finished, open, server, until};

const WRITERS: usize = 8;
const EVENTS: u64 = 60;

fn name_of(url: &str) -> String {
    url.rsplit('/').next().unwrap().to_owned()
}

/// Spec: J2, X2
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_many_writers_misses_nothing() {
    let server = server!();
    let url = server.database().await;
    let reader = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(reader.log());
    let mut feed = follow(Arc::clone(&log), EventFilter::new(), Cursor::start()).await.unwrap();
    let mut writing = Vec::new();
    for number in 0..WRITERS {
        let url = url.clone();
        writing.push(tokio::spawn(async move {
            let database = open(&url).await;
            let log: Arc<dyn EventLog> = Arc::new(database.log());
            let run = format!("run_{number}");
            let mut writer = begin(&log, &run, &format!("s-{number}")).await;
            while append(&mut writer, Warning::new("x").into()).await.unwrap() < EVENTS {}
            drop(writer);
            database.close().await;
        }));
    }
    let kill = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = '{}' AND query LIKE 'LISTEN%'",
        name_of(&url)
    );
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for count in 0..WRITERS as u64 * EVENTS {
        let next = feed.next().await.unwrap();
        let last = seen.entry(next.run.to_string()).or_default();
        assert_eq!(next.record.seq, *last + 1, "{}", next.run);
        *last += 1;
        if count % 100 == 50 {
            server.execute(&kill).await;
        }
    }
    for done in writing {
        done.await.unwrap();
    }
    assert!(seen.values().all(|last| *last == EVENTS), "{seen:?}");
    reader.close().await;
}

/// Spec: J2, X2. What was appended by a transaction that began early and ended late is not passed over; another
/// transaction of the server holds up nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_append_delays_and_skips_nothing() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    drop(begin(&log, "run_1", "s-1").await);
    let options: PgConnectOptions = url.parse().unwrap();
    let (mut one, mut other) = (options.connect().await.unwrap(), options.connect().await.unwrap());
    // It has an id, and appends nothing.
    let mut bystander = other.begin().await.unwrap();
    sqlx::query("CREATE TABLE elsewhere (id int)").execute(&mut *bystander).await.unwrap();
    let filter = EventFilter::new();
    let first = log.read_feed(&filter, &Cursor::start()).await.unwrap();
    assert_eq!(first.records.len(), 1, "a transaction that appends nothing holds up nothing");

    let mut slow =
        one.begin_with("BEGIN; LOCK TABLE backstop.events IN ROW EXCLUSIVE MODE").await.unwrap();
    let copy = "WITH made AS (INSERT INTO backstop.runs (run, session, started_at, last_seq, head, \
        summary, state, agent, epoch) SELECT 'run_slow', 's-slow', started_at, last_seq, head, summary, \
        state, agent, 1 FROM backstop.runs WHERE run = 'run_1' RETURNING id) \
        INSERT INTO backstop.events SELECT made.id, seq, \
        (pg_current_xact_id()::text::bigint << 20), at, type, actor, caused_by, schema, hash, data, salt, \
        erased FROM made, backstop.events WHERE run_id = (SELECT id FROM backstop.runs WHERE run = 'run_1')";
    sqlx::query(AssertSqlSafe(copy)).execute(&mut *slow).await.unwrap();
    drop(begin(&log, "run_2", "s-2").await);
    let held = log.read_feed(&filter, &first.cursor).await.unwrap();
    assert!(held.records.is_empty(), "what was appended later waits for what began earlier");
    slow.commit().await.unwrap();
    let page = log.read_feed(&filter, &held.cursor).await.unwrap();
    let runs: Vec<&str> = page.records.iter().map(|it| it.run.as_str()).collect();
    assert_eq!(runs, ["run_slow", "run_2"]);
    bystander.rollback().await.unwrap();
    database.close().await;
}

/// Spec: A1, X2. What another process sends wakes the run soon, also where the message is lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_hears_of_another_process() {
    use backstop_event_log::InboxRequest;
    let server = server!();
    let url = server.database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    let writer = begin(&log, "run_1", "s").await;
    let mut watch = log.watch_inbox(&"run_1".into());
    watch.wait_for_change().await;
    for text in ["told of", "not told of"] {
        if text == "not told of" {
            let kill = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = '{}' AND query LIKE 'LISTEN%'",
                name_of(&url)
            );
            server.execute(&kill).await;
        }
        let input = InboxRequest::Input { run: "run_1".into(), text: text.into() };
        let now = SystemClock.now();
        assert!(two.log().send(input, "ada", now).await.unwrap());
        loop {
            let waited = SystemClock.sleep(Duration::from_secs(30));
            tokio::select! {
                () = watch.wait_for_change() => {}
                () = waited => panic!("nothing was heard of: {text}"),
            }
            let inbox = log.inbox(&"run_1".into()).await.unwrap();
            if inbox.iter().any(|message| format!("{:?}", message.request).contains(text)) {
                break;
            }
        }
    }
    drop(writer);
    one.close().await;
    two.close().await;
}

/// Spec: X2, S10. The newest run is removed between two statements of a follower that stands behind it: its cursor stays
/// its own.
#[tokio::test(flavor = "multi_thread")]
async fn cursor_holds_while_the_newest_run_goes() {
    let server = server!();
    let url = server.database().await;
    let (database, reader) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    drop(begin(&log, "run_1", "a").await);
    drop(begin(&log, "run_2", "b").await);
    let follower = reader.log();
    let start = follower.read_feed(&EventFilter::new(), &Cursor::start()).await.unwrap();
    // In one transaction, as in a removal; the lock extends the moment.
    let mut other = connection(&url).await;
    let mut removing = other.begin().await.unwrap();
    let lock = "LOCK TABLE backstop.events IN ACCESS EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *removing).await.unwrap();
    sqlx::query(
        "WITH run AS (DELETE FROM backstop.runs WHERE run = 'run_2' RETURNING id), \
         gone AS (DELETE FROM backstop.events USING run WHERE run_id = run.id RETURNING place) \
         UPDATE backstop.meta SET removed_until = newest.place \
         FROM (SELECT max(place) AS place FROM gone) AS newest WHERE removed_until < newest.place",
    )
    .execute(&mut *removing)
    .await
    .unwrap();
    let reading = tokio::spawn(async move {
        let read = follower.read_feed(&EventFilter::new(), &start.cursor).await;
        read.map(|page| page.records.len())
    });
    let mut looking = connection(&url).await;
    until("the follower waits", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_locks \
             WHERE relation = 'backstop.events'::regclass AND NOT granted",
        )
        .fetch_one(&mut looking)
        .await
        .unwrap();
        waiting > 0
    })
    .await;
    removing.commit().await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), 0);
    reader.close().await;
    database.close().await;
}

/// Spec: X2. A place whose event is gone fits a cursor of any event of the store, and of no other store.
#[tokio::test(flavor = "multi_thread")]
async fn cursor_of_another_store_is_refused() {
    let server = server!();
    let (here, there) =
        (open(&server.database().await).await, open(&server.database().await).await);
    let (log, other): (Arc<dyn EventLog>, Arc<dyn EventLog>) =
        (Arc::new(here.log()), Arc::new(there.log()));
    drop(begin(&other, "run_0", "s-0").await);
    let foreign = other.read_feed(&EventFilter::new(), &Cursor::now()).await.unwrap().cursor;
    drop(begin(&log, "run_1", "s-1").await);
    let refused = follow(Arc::clone(&log), EventFilter::new(), foreign).await.unwrap_err();
    let is_it = matches!(&refused, LogError::ForeignCursor(it) if *it == foreign);
    assert!(is_it, "{refused:?}");
    let of_earlier_version = Cursor::behind(foreign.number().unwrap(), None);
    let page = log.read_feed(&EventFilter::new(), &of_earlier_version).await.unwrap();
    assert_eq!(page.records.len(), 1);
    assert_eq!(page.cursor.to_string().split('-').count(), 3, "{}", page.cursor);
    here.close().await;
    there.close().await;
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn erasures_are_counted_across_handles() {
    let server = server!();
    let url = server.database().await;
    let (here, there) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(here.log());
    let mut writer = begin(&log, "run_1", "s-1").await;
    append(&mut writer, finished()).await.unwrap();
    drop(writer);
    let count = async || there.log().erasures().await.unwrap().unwrap();
    let before = count().await;
    log.erase(&"run_1".into(), 1).await.unwrap();
    let erased = count().await;
    here.delete_run(&"run_1".into()).await.unwrap();
    assert!(before < erased && erased < count().await);
    here.close().await;
    there.close().await;
}
