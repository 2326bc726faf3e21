//! Connections and servers that die under a writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, LogError, RunFilter, read_events};
use backstop_store_postgres::{Database, Options};
use backstop_testkit::PostgresServer;
use layer0::StateStore;
use layer0::event::Warning;
use layer0::failure::{Effect, Failure};
use layer0::state::{Scope, StateWrite};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::support::{append, begin, connection, finished, open, resume, server};

async fn patient(url: &str) -> Database {
    let options = Options::new(url).unwrap().connections(3).patience(Duration::from_secs(60));
    Database::connect_with(options).await.unwrap()
}

/// Appends to runs side by side until it is told to stop; returns what was acknowledged of each.
async fn write_until(
    log: &Arc<dyn EventLog>,
    runs: usize,
    stop: &tokio::sync::watch::Receiver<bool>,
) -> Vec<(String, u64)> {
    let writers: Vec<_> = (0..runs)
        .map(|number| {
            let (log, stop) = (Arc::clone(log), stop.clone());
            tokio::spawn(async move {
                let run = format!("run_{number}");
                let mut writer = begin(&log, &run, &format!("s-{number}")).await;
                let mut acknowledged = 1;
                while !*stop.borrow() {
                    // A failure that was written, or a second time, would break the chain.
                    acknowledged = append(&mut writer, Warning::new("x").into()).await.unwrap();
                }
                (run, acknowledged)
            })
        })
        .collect();
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }
    written
}

async fn check(log: &dyn EventLog, written: Vec<(String, u64)>) {
    for (run, acknowledged) in written {
        let (summary, events) = read_events(log, &run.as_str().into()).await.unwrap();
        let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=acknowledged).collect::<Vec<_>>(), "{run}");
        assert_eq!(summary.last_seq, acknowledged, "{run}");
    }
}

/// Spec: J2. No append is lost, written twice, or reported as failed that was written.
#[tokio::test(flavor = "multi_thread")]
async fn appends_outlive_connections_that_are_killed() {
    let server = server!();
    let url = server.database().await;
    outlives_killed_connections(server, &url, &url).await;
}

/// Appends through a URL while the connections of the server are killed.
pub(crate) async fn outlives_killed_connections(server: &PostgresServer, url: &str, through: &str) {
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    let database = patient(through).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let killer = async {
        for _ in 0..25 {
            SystemClock.sleep(Duration::from_millis(40)).await;
            let kill = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            );
            server.execute(&kill).await;
        }
        stop.send_replace(true);
    };
    let (written, ()) = tokio::join!(write_until(&log, 6, &stopped), killer);
    check(&*log, written).await;
    database.close().await;
}

/// Spec: J2, D3
#[tokio::test(flavor = "multi_thread")]
async fn appends_outlive_servers_that_crash() {
    let Some(server) = tokio::task::spawn_blocking(PostgresServer::start).await.unwrap() else {
        return;
    };
    let server = Arc::new(server);
    let url = server.database().await;
    let database = patient(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let crashing = Arc::clone(&server);
    let crashes = tokio::task::spawn_blocking(move || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(400));
            crashing.kill();
            crashing.start_again();
        }
        std::thread::sleep(Duration::from_millis(400));
        stop.send_replace(true);
    });
    let (written, crashed) = tokio::join!(write_until(&log, 6, &stopped), crashes);
    crashed.unwrap();
    check(&*log, written).await;
    assert_eq!(log.runs(RunFilter::new()).await.unwrap().len(), 6);
    database.close().await;
}

/// Passes connections on to a server, and swallows what it answers while it is told to: the connection breaks then.
async fn lossy(server: String) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let swallows = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&swallows);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, swallows) = (server.clone(), Arc::clone(&flag));
            tokio::spawn(async move {
                let Ok(mut upstream) = TcpStream::connect(server).await else { return };
                let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
                loop {
                    tokio::select! {
                        read = client.read(&mut asked) => match read {
                            Ok(read @ 1..) => upstream.write_all(&asked[..read]).await.unwrap_or(()),
                            _ => return,
                        },
                        read = upstream.read(&mut answered) => match read {
                            // One answer is lost, and with it the connection.
                            Ok(1..) if swallows.swap(false, Ordering::SeqCst) => return,
                            Ok(read @ 1..) => client.write_all(&answered[..read]).await.unwrap_or(()),
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    (port, swallows)
}

/// Spec: J2. An append whose answer was lost was written, and is told so; it is not written again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_no_lost_append() {
    let server = server!();
    let url = server.database().await;
    let place = url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
    let (port, swallows) = lossy(place.clone()).await;
    let database = patient(&url.replace(&place, &format!("127.0.0.1:{port}"))).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s-1").await;
    for expected in 2..=12 {
        swallows.store(true, Ordering::SeqCst);
        let seq = append(&mut writer, Warning::new("x").into()).await.unwrap();
        assert_eq!(seq, expected);
        swallows.store(false, Ordering::SeqCst);
    }
    check(&*log, vec![("run_1".to_owned(), 12)]).await;
    // A run that begins, too.
    for number in 2..6 {
        swallows.store(true, Ordering::SeqCst);
        drop(begin(&log, &format!("run_{number}"), &format!("s-{number}")).await);
    }
    assert_eq!(log.runs(RunFilter::new()).await.unwrap().len(), 5);
    database.close().await;
}

/// A way to a server that loses the first request with a text, and the connection with it. Further connections wait
/// until it is mended.
struct Gap {
    port: u16,
    is_lost: Arc<Semaphore>,
    is_mended: Arc<Semaphore>,
}

impl Gap {
    async fn start(server: String, text: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let closed = || Arc::new(Semaphore::new(0));
        let (is_cut, is_lost, is_mended) = (Arc::<AtomicBool>::default(), closed(), closed());
        let gap = Self { port, is_lost: Arc::clone(&is_lost), is_mended: Arc::clone(&is_mended) };
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, is_cut) = (server.clone(), Arc::clone(&is_cut));
                let (is_lost, is_mended) = (Arc::clone(&is_lost), Arc::clone(&is_mended));
                tokio::spawn(async move {
                    if is_cut.load(Ordering::SeqCst) {
                        drop(is_mended.acquire().await);
                    }
                    let Ok(mut upstream) = TcpStream::connect(server).await else { return };
                    let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
                    loop {
                        tokio::select! {
                            read = client.read(&mut asked) => {
                                let Ok(read @ 1..) = read else { return };
                                let has_text = asked[..read].windows(text.len()).any(|it| it == text.as_bytes());
                                if has_text && !is_cut.swap(true, Ordering::SeqCst) {
                                    return is_lost.add_permits(1);
                                }
                                upstream.write_all(&asked[..read]).await.unwrap_or(());
                            }
                            read = upstream.read(&mut answered) => {
                                let Ok(read @ 1..) = read else { return };
                                client.write_all(&answered[..read]).await.unwrap_or(());
                            }
                        }
                    }
                });
            }
        });
        gap
    }
}

/// Spec: J2, D8. Another writer has appended an event with the same seq meanwhile: it is not taken for the lost one.
#[tokio::test(flavor = "multi_thread")]
async fn event_of_another_writer_is_no_lost_answer() {
    let server = server!();
    let url = server.database().await;
    let place = url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
    let gap = Gap::start(place.clone(), "words of the first").await;
    let database = patient(&url.replace(&place, &format!("127.0.0.1:{}", gap.port))).await;
    let other = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s-1").await;
    let appending = tokio::spawn(async move {
        append(&mut writer, Warning::new("words of the first").into()).await
    });
    gap.is_lost.acquire().await.unwrap().forget();
    let free = "UPDATE backstop.runs SET owner = NULL";
    sqlx::raw_sql(free).execute(&mut connection(&url).await).await.unwrap();
    let other_log: Arc<dyn EventLog> = Arc::new(other.log());
    let mut second = resume(&other_log, "run_1").await;
    assert_eq!(append(&mut second, Warning::new("words of the second").into()).await.unwrap(), 2);
    gap.is_mended.add_permits(1);
    let refused = appending.await.unwrap();
    assert!(
        matches!(refused, Err(LogError::Conflict { .. } | LogError::LeaseEnded(_))),
        "{refused:?}"
    );
    assert_eq!(append(&mut second, finished()).await.unwrap(), 3);
    let (_, events) = read_events(&*other_log, &"run_1".into()).await.unwrap();
    assert!(format!("{:?}", events[1].kind).contains("words of the second"), "{events:#?}");
}

/// Makes each write of state end its connection at the commit, or fail before it.
const CUT: &str = "CREATE FUNCTION backstop.cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    IF new.key = 'refused' THEN RAISE EXCEPTION 'refused'; END IF; \
    PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); RETURN NULL; END $$; \
    CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON backstop.state DEFERRABLE INITIALLY DEFERRED \
    FOR EACH ROW WHEN (new.key = 'cut') EXECUTE FUNCTION backstop.cut(); \
    CREATE TRIGGER refused AFTER INSERT ON backstop.state \
    FOR EACH ROW WHEN (new.key = 'refused') EXECUTE FUNCTION backstop.cut()";

/// Spec: E2. A write whose commit was not answered may have been made; one that was refused was not.
#[tokio::test(flavor = "multi_thread")]
async fn unanswered_write_of_state_may_have_acted() {
    let url = server!().database().await;
    let state = open(&url).await.state();
    sqlx::raw_sql(CUT).execute(&mut connection(&url).await).await.unwrap();
    for (key, effect) in [("cut", Effect::Unknown), ("refused", Effect::None)] {
        let error = state
            .write(StateWrite::new(Scope::Global, key, serde_json::json!(1)))
            .await
            .unwrap_err();
        assert_eq!(error.effect(), effect, "{key}: {error:?}");
    }
}
