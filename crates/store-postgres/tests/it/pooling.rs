//! Through a proxy that shares connections, one transaction at a time: leases alone count, and nothing is heard of.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{Cursor, EventFeed, EventFilter, EventLog, LogError, read_events};
use backstop_store_postgres::{Database, Options};
use backstop_testkit::contract::{self, Open};
use backstop_testkit::{Pooler, PostgresServer};

use crate::crashes::outlives_killed_connections;
use crate::fencing::{Other, finished};
use crate::support::{append, begin, open, reopen_at, resume};

/// The server and the proxy before it, or a test that is left out, which says so.
macro_rules! pooled {
    () => {
        match pooled() {
            Some(pooled) => pooled,
            None => return,
        }
    };
}

fn pooled() -> Option<(&'static PostgresServer, &'static Pooler)> {
    static POOLER: OnceLock<Option<Pooler>> = OnceLock::new();
    let server = PostgresServer::shared()?;
    Some((server, POOLER.get_or_init(|| server.pooler()).as_ref()?))
}

/// Spec: J2. It is found out, and said.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_found_out() {
    let (server, pooler) = pooled!();
    let url = server.database().await;
    let shared = open(&pooler.through(&url)).await;
    assert!(!shared.server().await.unwrap().is_direct);
    let direct = open(&url).await;
    assert!(direct.server().await.unwrap().is_direct);
    shared.close().await;
    direct.close().await;
}

/// Spec: J2. Many processes that look at once, more than the proxy has connections, wait for none of each other, and
/// each finds it out.
#[tokio::test(flavor = "multi_thread")]
async fn processes_find_it_out_at_once() {
    let (server, pooler) = pooled!();
    let url = pooler.through(&server.database().await);
    open(&url).await.close().await;
    for _ in 0..4 {
        let opening = (0..12).map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open(&url).await })
        });
        for opened in opening.collect::<Vec<_>>() {
            let database = opened.await.unwrap();
            assert!(!database.server().await.unwrap().is_direct);
            database.close().await;
        }
    }
}

/// Spec: S11, J2
#[tokio::test(flavor = "multi_thread")]
async fn the_log_passes_the_suite_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::event_log(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.log()) as _
    });
    suite.check().await;
    let databases = server.in_turn();
    let suite = contract::erasable_event_log(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.log()) as _
    });
    suite.check().await;
}

/// Spec: J2, D8
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_what_it_has_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::reopened_event_log(async move || {
        let url = databases.next().await;
        let open: Open<dyn EventLog> = Box::new(move || {
            let (url, through) = (url.clone(), pooler.through(&url));
            Box::pin(
                async move { Arc::new(reopen_at(&through, &url).await.log()) as Arc<dyn EventLog> },
            )
        });
        open
    });
    suite.check().await;
}

/// Spec: X2
#[tokio::test(flavor = "multi_thread")]
async fn the_log_can_be_followed_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::feed(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.log()) as _
    });
    suite.check().await;
}

/// Spec: J2w
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_starts_pass_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::start_keys(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.log()) as _
    });
    suite.check().await;
}

/// Spec: A1
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_approvals_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::approvals(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.log()) as _
    });
    suite.check().await;
}

/// Spec: X2, X4
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_subscriptions_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::subscriptions(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.log()) as _
    });
    suite.check().await;
}

/// Spec: D9, M7
#[tokio::test(flavor = "multi_thread")]
async fn the_log_keeps_transcripts_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::transcripts(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.log()) as _
    });
    suite.check().await;
}

/// Spec: S1, L1
#[tokio::test(flavor = "multi_thread")]
async fn errors_and_results_pass_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::error_store(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.errors()) as _
    });
    suite.check().await;
    let databases = server.in_turn();
    let suite = contract::result_store(async move || {
        Arc::new(open(&pooler.through(&databases.next().await)).await.results()) as _
    });
    suite.check().await;
}

/// Spec: K1
#[tokio::test(flavor = "multi_thread")]
async fn the_state_store_passes_pooled() {
    let (server, pooler) = pooled!();
    let databases = server.in_turn();
    let suite = contract::state_store(async move |clock: Arc<dyn Clock>| {
        let url = pooler.through(&databases.next().await);
        Arc::new(open(&url).await.state().clock(clock)) as _
    });
    suite.check().await;
}

/// Spec: J2. No lock says that a process is dead: its lease has to end first, and then it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_is_overtaken_after_its_lease() {
    let (server, pooler) = pooled!();
    let url = pooler.through(&server.database().await);
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut long = Other::start(&url, Duration::from_secs(3600));
    long.says("acts");
    long.kill();
    for _ in 0..3 {
        let refused = log.claim(&"run_1".into()).await;
        assert!(
            matches!(refused, Err(LogError::Claimed(_))),
            "its lease has not ended: {refused:?}"
        );
    }
    database.close().await;

    let url = pooler.through(&server.database().await);
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut short = Other::start(&url, Duration::from_secs(2));
    short.says("acts");
    short.kill();
    let mut writer = resume(&log, "run_1").await;
    append(&mut writer, finished()).await.unwrap();
    let (summary, events) = read_events(&*log, &"run_1".into()).await.unwrap();
    assert_eq!(events.len() as u64, summary.last_seq);
    database.close().await;
}

/// Spec: J2. A process that was stopped past its lease writes nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_writes_nothing_pooled() {
    let (server, pooler) = pooled!();
    let url = pooler.through(&server.database().await);
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let other = Other::start(&url, Duration::from_secs(1));
    other.says("acts");
    other.signal("STOP");
    let mut writer = resume(&log, "run_1").await;
    append(&mut writer, finished()).await.unwrap();
    let last = writer.summary().last_seq;
    other.signal("CONT");
    let refused = other.says("refused");
    assert!(refused.starts_with("refused log.append_failed"), "{refused}");
    assert_eq!(log.records(&"run_1".into(), 1).await.unwrap().len() as u64, last);
    database.close().await;
}

/// Spec: J2. A connection of the server that is lost is the proxy's, and no append is lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn appends_outlive_killed_connections_pooled() {
    let (server, pooler) = pooled!();
    let url = server.database().await;
    outlives_killed_connections(server, &url, &pooler.through(&url)).await;
}

/// Spec: J2, X2. More clients than the proxy has connections, which all use statements of the same names.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_share_few_connections() {
    let (server, pooler) = pooled!();
    let url = pooler.through(&server.database().await);
    let mut handles = Vec::new();
    for _ in 0..8 {
        let options = Options::new(&url).unwrap().connections(3).patience(Duration::from_secs(30));
        handles.push(Database::connect_with(options).await.unwrap());
    }
    let writing = handles.iter().enumerate().map(|(number, database)| {
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        tokio::spawn(async move {
            for round in 0..8 {
                let mut writer =
                    begin(&log, &format!("run_{number}_{round}"), &format!("s-{number}-{round}"))
                        .await;
                for _ in 0..5 {
                    append(&mut writer, layer0::event::Warning::new("x").into()).await.unwrap();
                }
                append(&mut writer, finished()).await.unwrap();
            }
        })
    });
    for done in writing.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    let log = handles[0].log();
    let (mut cursor, mut seen) = (Cursor::start(), 0);
    while seen < 8 * 8 * 7 {
        let page = log.read_feed(&EventFilter::new(), &cursor).await.unwrap();
        (cursor, seen) = (page.cursor, seen + page.records.len());
    }
    assert_eq!(seen, 8 * 8 * 7);
    for database in handles {
        database.close().await;
    }
}
