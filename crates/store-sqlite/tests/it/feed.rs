//! Events and requests of other processes, as they arrive.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use backstop_event_log::{
    Cursor, Erasures, EventFeed, EventFilter, EventLog, Feed, Inbox, InboxRequest, Log, LogError,
    RunWriter, Seed, follow,
};
use backstop_store_sqlite::{Database, Durability};
use layer0::event::{Actor, Warning};
use layer0::failure::Failure;

use crate::{Folder, at, open, started, tamper, write_run};

const PROCESSES: usize = 8;
/// Number of events that a process writes if it is not killed.
const EVENTS: u64 = 300;
/// The file that [`writes_for_a_follower`] writes to, and the run.
const FOLLOWED: [&str; 2] = ["BACKSTOP_TEST_FOLLOWED", "BACKSTOP_TEST_FOLLOWED_RUN"];
/// The run whose process is killed; it writes until then.
const KILLED: &str = "run_0";

fn log_of(database: &Database) -> Arc<dyn EventLog> {
    Arc::new(database.log())
}

/// Writes in its own process, and prints what was acknowledged; otherwise it does nothing.
#[tokio::test]
async fn writes_for_a_follower() {
    let [Some(path), Some(run)] = FOLLOWED.map(std::env::var_os) else { return };
    let run = run.into_string().unwrap();
    let database = Database::open(&path, Durability::Normal).await.unwrap();
    let mut writer = RunWriter::new(log_of(&database), run.as_str().into());
    let mut seq = 0;
    while seq < EVENTS || run == KILLED {
        // One event, or several in one commit.
        for _ in 0..=seq % 3 {
            let kind = match seq {
                0 => started(&run),
                _ => Warning::new("at work").into(),
            };
            writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, kind);
            seq += 1;
        }
        // A lock may last longer than the timeout; staged events stay.
        while let Err(error) = writer.commit().await.map(drop) {
            assert!(error.is_retryable(), "{error:?}");
        }
        println!("\nacknowledged {seq}");
    }
    database.close().await;
}

fn start(folder: &Folder, number: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "feed::writes_for_a_follower", "--nocapture"])
        .env(FOLLOWED[0], folder.file())
        .env(FOLLOWED[1], format!("run_{number}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a process; returns the last seq that was acknowledged to it.
fn acknowledged(child: &mut Child) -> u64 {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seqs = lines.map_while(Result::ok).filter_map(|line| {
        let seq = line.strip_prefix("acknowledged ")?;
        seq.parse().ok()
    });
    let last = seqs.last().unwrap_or(0);
    child.wait().unwrap();
    last
}

/// The seqs of each run, in the order of arrival.
type Came = BTreeMap<String, Vec<u64>>;

/// Follows until the run `end`, and kills a process once enough events of its run have arrived.
async fn follow_until_the_end(mut feed: Feed, killed: u32) -> Came {
    let mut came = Came::new();
    loop {
        let next = feed.next().await.unwrap();
        if next.run.as_str() == "end" {
            return came;
        }
        let of_run = came.entry(next.run.to_string()).or_default();
        of_run.push(next.record.seq);
        if next.run.as_str() == KILLED && of_run.len() == 20 {
            let kill = Command::new("kill").args(["-9", &killed.to_string()]).status();
            assert!(kill.unwrap().success());
        }
    }
}

/// Reads without waiting, so that it sees the log between as many commits as possible; also returns the number of pages
/// with events.
async fn read_until_the_end(log: Arc<dyn EventLog>) -> (Came, usize) {
    let (mut came, mut pages, mut cursor) = (Came::new(), 0, Cursor::start());
    loop {
        let page = log.read_feed(&EventFilter::new(), &cursor).await.unwrap();
        cursor = page.cursor;
        pages += usize::from(!page.records.is_empty());
        for next in page.records {
            if next.run.as_str() == "end" {
                return (came, pages);
            }
            came.entry(next.run.to_string()).or_default().push(next.record.seq);
        }
    }
}

/// Spec: X2, W3. Each event comes once, in order, whichever process wrote it, also of one that was killed.
#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_are_followed_without_gap() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let reader = Database::open_read_only(folder.file()).await.unwrap();
    let feed = follow(log_of(&reader), EventFilter::new(), Cursor::start()).await.unwrap();
    let reading = tokio::spawn(read_until_the_end(log_of(&reader)));
    let mut children: Vec<Child> = (0..PROCESSES).map(|number| start(&folder, number)).collect();
    let following = tokio::spawn(follow_until_the_end(feed, children[0].id()));
    let waiting = tokio::task::spawn_blocking(move || {
        children.iter_mut().map(acknowledged).collect::<Vec<u64>>()
    });
    let acknowledged = waiting.await.unwrap();
    write_run(&log_of(&database), "end", "end", 1).await;

    let (read, pages) = reading.await.unwrap();
    assert!(pages > PROCESSES, "it read while the others wrote: {pages}");
    for came in [following.await.unwrap(), read] {
        assert_eq!(came.len(), PROCESSES);
        for (run, seqs) in &came {
            let written = database.log().records(&run.as_str().into(), 1).await.unwrap();
            let written: Vec<u64> = written.iter().map(|record| record.seq).collect();
            assert_eq!(*seqs, written, "{run}: each event once, in order");
            let number: usize = run.strip_prefix("run_").unwrap().parse().unwrap();
            let acknowledged = acknowledged[number];
            assert!(acknowledged > 0 && seqs.last() >= Some(&acknowledged), "{run}");
            assert!(run == KILLED || acknowledged >= EVENTS, "{run}: {acknowledged}");
        }
    }
    reader.close().await;
    database.close().await;
}

async fn places(database: &Database, cursor: &Cursor) -> Vec<(String, u64)> {
    let page = database.log().read_feed(&EventFilter::new(), cursor).await.unwrap();
    assert!(page.is_end);
    page.records.iter().map(|it| (it.run.to_string(), it.record.seq)).collect()
}

async fn end(database: &Database) -> Cursor {
    database.log().read_feed(&EventFilter::new(), &Cursor::now()).await.unwrap().cursor
}

/// Writes a run with its end.
async fn whole(database: &Database, run: &str) {
    let mut writer = RunWriter::new(log_of(database), run.into());
    for kind in [started(run), crate::retention::finished()] {
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

fn both(run: &str) -> [(String, u64); 2] {
    [1, 2].map(|seq| (run.to_owned(), seq))
}

/// Spec: X2, S10. The numbers of events that were taken away are not given out again.
#[tokio::test]
async fn what_follows_a_removed_run_is_brought() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    whole(&database, "run_1").await;
    let behind_first = end(&database).await;
    whole(&database, "run_2").await;
    let behind_second = end(&database).await;
    for again in 0..2 {
        database.delete_run(&"run_2".into()).await.unwrap();
        assert!(places(&database, &behind_first).await.is_empty());
        let behind_removed = end(&database).await;
        database.vacuum().await.unwrap();
        whole(&database, "run_2").await;
        for cursor in [behind_first, behind_second, behind_removed] {
            assert_eq!(places(&database, &cursor).await, both("run_2"), "{again}: {cursor}");
        }
    }
    assert_eq!(places(&database, &Cursor::start()).await, [both("run_1"), both("run_2")].concat());
}

/// An interrupted removal: the row of the run is gone, its events remain.
const CUT_SHORT: &str =
    "INSERT INTO removed (run_id, run, event) SELECT id, run, last_event FROM runs WHERE run = 'run_2';
    DELETE FROM runs WHERE run = 'run_2'";

/// Spec: X2, S10
#[tokio::test]
async fn events_of_a_removed_run_never_come() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    whole(&database, "run_1").await;
    whole(&database, "run_2").await;
    database.close().await;
    tamper(&folder.file(), CUT_SHORT).await;
    let database = open(&folder.file()).await;
    // It gets the number that the removed run had.
    whole(&database, "run_3").await;
    assert_eq!(places(&database, &Cursor::start()).await, [both("run_1"), both("run_3")].concat());
}

/// Spec: X2. What was restored from a backup is another log behind it.
#[tokio::test]
async fn a_restored_backup_refuses_a_later_cursor() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    whole(&database, "run_1").await;
    let early = end(&database).await;
    let backup = folder.file().with_file_name("backup.db");
    database.backup(&backup).await.unwrap();
    whole(&database, "run_2").await;
    let late = end(&database).await;

    let restored = open(&backup).await;
    for run in ["run_3", "run_4"] {
        assert!(places(&restored, &early).await.iter().all(|(it, _)| it != "run_2"));
        let refused = follow(log_of(&restored), EventFilter::new(), late).await.unwrap_err();
        assert!(matches!(&refused, LogError::ForeignCursor(it) if *it == late), "{refused:?}");
        assert!(refused.hint().unwrap().contains("an older backup"));
        // Another event is at this position from now on.
        whole(&restored, run).await;
    }
    assert_eq!(places(&restored, &early).await, [both("run_3"), both("run_4")].concat());
}

/// Spec: C3, W3
#[tokio::test]
async fn a_follower_closes_without_a_trace() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let reader = Database::open_read_only(folder.file()).await.unwrap();
    let mut feed = follow(log_of(&reader), EventFilter::new(), Cursor::now()).await.unwrap();
    let inbox = reader.log().watch_inbox(&"run_1".into());
    whole(&database, "run_1").await;
    assert_eq!(feed.next().await.unwrap().record.seq, 1, "it looks by now");
    database.close().await;
    reader.close().await;
    assert_eq!(folder.names(), ["backstop.db"]);
    assert_eq!(feed.next().await.unwrap().record.seq, 2, "it was read before");
    drop(inbox);
}

/// Spec: A1
#[tokio::test]
async fn an_inbox_is_watched_across_handles() {
    let folder = Folder::new();
    let (here, there) = (open(&folder.file()).await, open(&folder.file()).await);
    write_run(&log_of(&here), "run_1", "s", 1).await;
    let mut watch = here.log().watch_inbox(&"run_1".into());
    watch.wait_for_change().await;
    for _ in 0..2 {
        let input = InboxRequest::Input { run: "run_1".into(), text: "go on".into() };
        assert!(there.log().send(input, "ops", at(2)).await.unwrap());
        watch.wait_for_change().await;
    }
    // A run that could not read the pending request is notified again.
    watch.wait_for_change().await;
}

/// Writes events to a run, the first of which starts it.
async fn write_long(writer: &mut RunWriter, count: u64) {
    for number in 0..count {
        let kind = match (writer.summary().last_seq, number) {
            (0, 0) => started("run_1"),
            _ => Warning::new("x").into(),
        };
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

/// Spec: X2, D9. All events arrive, also those that are appended between two pages.
#[tokio::test]
async fn long_run_is_read_in_bounded_pages() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    let mut writer = RunWriter::new(Arc::clone(&log), "run_1".into());
    write_long(&mut writer, 3_000).await;
    let unmatched = EventFilter::new().run("run_1").event_type("run.failed");
    let page = log.read_feed(&unmatched, &Cursor::start()).await.unwrap();
    assert!(!page.is_end && page.cursor.number() <= Some(512), "{:?}", page.cursor);
    let filter = EventFilter::new().run("run_1");
    let (mut seqs, mut cursor, mut pages) = (Vec::new(), Cursor::start(), 0);
    loop {
        let page = log.read_feed(&filter, &cursor).await.unwrap();
        seqs.extend(page.records.iter().map(|it| it.record.seq));
        cursor = page.cursor;
        pages += 1;
        if pages == 3 {
            whole(&database, "run_2").await;
            write_long(&mut writer, 2_000).await;
        }
        if page.is_end {
            break;
        }
    }
    assert_eq!(seqs, (1..=5_000).collect::<Vec<_>>(), "each once and in order");
    // A position before those that were read first.
    let page = log.read_feed(&filter, &Cursor::behind(100, None)).await.unwrap();
    assert_eq!(page.records.first().map(|it| it.record.seq), Some(101));
}

/// Spec: X2, S10. The database gives the row id of a removed run to the next one.
#[tokio::test]
async fn run_under_a_removed_name_is_read_whole() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    let filter = EventFilter::new().run("run_1");
    for _ in 0..2 {
        let mut writer = RunWriter::new(Arc::clone(&log), "run_1".into());
        write_long(&mut writer, 2_000).await;
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, crate::retention::finished());
        writer.commit().await.unwrap();
        drop(writer);
        let (mut seqs, mut cursor, mut is_end) = (Vec::new(), Cursor::start(), false);
        while !is_end {
            let page = log.read_feed(&filter, &cursor).await.unwrap();
            seqs.extend(page.records.iter().map(|it| it.record.seq));
            (cursor, is_end) = (page.cursor, page.is_end);
        }
        assert_eq!(seqs, (1..=2_001).collect::<Vec<_>>());
        database.delete_run(&"run_1".into()).await.unwrap();
    }
}

/// Spec: X2. A place whose event is gone fits a cursor of any event of the store, and of no other store.
#[tokio::test]
async fn cursor_of_another_file_is_refused() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let (here, there) = (open(&folder.file()).await, open(&elsewhere.file()).await);
    whole(&there, "run_0").await;
    let foreign = end(&there).await;
    whole(&here, "run_1").await;
    here.delete_run(&"run_1".into()).await.unwrap();
    whole(&here, "run_2").await;
    let refused = follow(log_of(&here), EventFilter::new(), foreign).await.unwrap_err();
    assert!(matches!(&refused, LogError::ForeignCursor(it) if *it == foreign), "{refused:?}");
    assert!(refused.hint().unwrap().contains("another one"));
    let number = foreign.number().unwrap();
    let of_earlier_version = Cursor::behind(number, None);
    assert_eq!(places(&here, &of_earlier_version).await, both("run_2"));
    // Each cursor of this store has its mark.
    let given = end(&here).await;
    let page = log_of(&here).read_feed(&EventFilter::new(), &Cursor::start()).await.unwrap();
    for cursor in [given, page.cursor, page.records[0].cursor] {
        assert_eq!(cursor.to_string().split('-').count(), 3, "{cursor}");
    }
}

/// Spec: X2. A reader does not migrate a file of an older version.
#[tokio::test]
async fn file_without_a_mark_is_followed() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    whole(&database, "run_1").await;
    let marked = end(&database).await;
    database.close().await;
    tamper(
        &folder.file(),
        "DROP TRIGGER events_erased; DROP TRIGGER runs_removed; DROP TABLE store",
    )
    .await;
    let reader = Database::open_read_only(folder.file()).await.unwrap();
    assert_eq!(places(&reader, &Cursor::start()).await, both("run_1"));
    assert!(places(&reader, &marked).await.is_empty());
    assert_eq!(reader.log().erasures().await.unwrap(), None);
    reader.close().await;
}

/// Spec: S10
#[tokio::test]
async fn erasures_are_counted_across_handles() {
    let folder = Folder::new();
    let (here, there) = (open(&folder.file()).await, open(&folder.file()).await);
    for run in ["run_1", "run_2"] {
        whole(&here, run).await;
    }
    let count = async || there.log().erasures().await.unwrap().unwrap();
    let before = count().await;
    here.log().erase(&"run_1".into(), 1).await.unwrap();
    let erased = count().await;
    here.delete_run(&"run_2".into()).await.unwrap();
    assert!(before < erased && erased < count().await);
}

/// Spec: A1, W3. The runtime of the first watch ended while the database stays open.
#[test]
fn inbox_is_watched_after_a_runtime_ended() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (folder, kept) = (Folder::new(), runtime());
    let here = kept.block_on(open(&folder.file()));
    let first = runtime();
    let watch = first.block_on(async { here.log().watch_inbox(&"run_0".into()) });
    first.shutdown_background();
    drop(watch);
    kept.block_on(async {
        let there = open(&folder.file()).await;
        write_run(&log_of(&here), "run_1", "s", 1).await;
        let mut watch = here.log().watch_inbox(&"run_1".into());
        watch.wait_for_change().await;
        let input = InboxRequest::Input { run: "run_1".into(), text: "go on".into() };
        assert!(there.log().send(input, "ops", at(2)).await.unwrap());
        watch.wait_for_change().await;
    });
}
