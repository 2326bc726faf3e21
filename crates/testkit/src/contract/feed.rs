//! The contract of the feed of an event log.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_event_log::{
    Cursor, EventFilter, Feed, FeedPage, FeedRecord, LogError, Record, follow,
};
use futures_util::future::{Either, join, join_all, select};
use layer0::event::Hash;

use super::log::history::{Log, attempted, finished, open, records, warning, whole, write};
use super::suite::{Suite, checks, woken};

/// Checks event logs against the contract of [`follow`]: each event once, in order, from any cursor, as it is appended.
/// `make` makes an empty log for each trial.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// backstop_testkit::contract::feed(async || Arc::new(MemoryLog::new()) as _).check().await;
/// # }
/// ```
///
/// Specification: X2, W3.
pub fn feed(make: impl AsyncFn() -> Log + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            begins_at_the_moment_it_is_asked,
            brings_each_event_of_many_writers_once,
            brings_events_as_they_were_appended,
            brings_more_than_a_page,
            brings_the_events_of_one_run,
            brings_the_events_of_one_session,
            brings_the_events_of_some_types,
            brings_what_was_erased_as_such,
            goes_on_behind_any_cursor,
            keeps_pages_small,
            loses_nothing_with_a_wait_that_is_dropped,
            passes_over_what_is_not_wanted,
            refuses_a_cursor_behind_the_end,
            refuses_a_cursor_of_another_log,
            wakes_each_follower,
        ],
    )
}

type OpenFeed = (String, u64);

fn place(record: &FeedRecord) -> OpenFeed {
    (record.run.to_string(), record.record.seq)
}

fn places(records: &[FeedRecord]) -> Vec<OpenFeed> {
    records.iter().map(place).collect()
}

fn named(run: &str, seqs: impl IntoIterator<Item = u64>) -> Vec<OpenFeed> {
    seqs.into_iter().map(|seq| (run.to_owned(), seq)).collect()
}

/// Reads the events after a cursor, page by page.
async fn standing(log: &Log, filter: &EventFilter, cursor: Cursor) -> Vec<FeedRecord> {
    let (mut all, mut cursor) = (Vec::new(), cursor);
    loop {
        let page = log.read_feed(filter, &cursor).await.expect("a page is read");
        let is_end = page.is_end;
        all.extend(page.records);
        if is_end {
            return all;
        }
        assert_ne!(page.cursor, cursor, "a page that is not the last goes on");
        cursor = page.cursor;
    }
}

async fn all(log: &Log) -> Vec<FeedRecord> {
    standing(log, &EventFilter::new(), Cursor::start()).await
}

async fn followed(log: &Log, filter: EventFilter, cursor: Cursor) -> Feed {
    follow(Arc::clone(log), filter, cursor).await.expect("the log can be followed")
}

async fn next(feed: &mut Feed) -> OpenFeed {
    place(&feed.next().await.expect("an event is read"))
}

async fn begins_at_the_moment_it_is_asked(log: Log) {
    let mut empty = followed(&log, EventFilter::new(), Cursor::now()).await;
    let mut writer = open(&log, "run_1", "s", 60).await;
    let mut feed = followed(&log, EventFilter::new(), Cursor::now()).await;
    let asked_at = feed.cursor();
    write(&mut writer, 61, ["a", "b"].map(warning)).await.expect("it is appended");
    assert_eq!(next(&mut feed).await, ("run_1".to_owned(), 2), "what is appended before it waits");
    assert_eq!(next(&mut empty).await, ("run_1".to_owned(), 1));
    let since = standing(&log, &EventFilter::new(), asked_at).await;
    assert_eq!(places(&since), named("run_1", [2, 3]), "now is kept as what it was");
}

async fn brings_events_as_they_were_appended(log: Log) {
    let mut one = open(&log, "run_1", "s-1", 70).await;
    let mut two = open(&log, "run_2", "s-2", 60).await;
    write(&mut two, 61, ["a", "b"].map(warning)).await.expect("it is appended");
    write(&mut one, 71, [warning("c")]).await.expect("it is appended");
    write(&mut two, 62, [finished()]).await.expect("it is appended");
    let all = all(&log).await;
    let order =
        [("run_1", 1), ("run_2", 1), ("run_2", 2), ("run_2", 3), ("run_1", 2), ("run_2", 4)];
    assert_eq!(places(&all), order.map(|(run, seq)| (run.to_owned(), seq)));
    for run in ["run_1", "run_2"] {
        let of_run = all.iter().filter(|it| it.run.as_str() == run).map(|it| it.record.clone());
        assert_eq!(of_run.collect::<Vec<Record>>(), records(&log, run).await, "with every field");
    }
}

async fn goes_on_behind_any_cursor(log: Log) {
    let mut one = open(&log, "run_1", "s-1", 60).await;
    whole(&log, "run_2", "s-2", 60).await;
    write(&mut one, 61, ["a", "b"].map(warning)).await.expect("it is appended");
    let all = all(&log).await;
    let mut feed = followed(&log, EventFilter::new(), Cursor::start()).await;
    for (read, record) in all.iter().enumerate() {
        assert_eq!(next(&mut feed).await, place(record));
        assert_eq!(feed.cursor(), record.cursor);
        let kept: Cursor = record.cursor.to_string().parse().expect("its text is a cursor");
        assert_eq!(standing(&log, &EventFilter::new(), kept).await, all[read + 1..]);
        let mut later = followed(&log, EventFilter::new(), kept).await;
        if let Some(expected) = all.get(read + 1) {
            assert_eq!(next(&mut later).await, place(expected));
        }
    }
}

async fn brings_the_events_of_one_run(log: Log) {
    let filter = EventFilter::new().run("run_2");
    let mut feed = followed(&log, filter.clone(), Cursor::start()).await;
    let mut one = open(&log, "run_1", "s-1", 60).await;
    let mut two = open(&log, "run_2", "s-2", 60).await;
    for text in ["a", "b"] {
        write(&mut one, 61, [warning(text)]).await.expect("it is appended");
        write(&mut two, 61, [warning(text)]).await.expect("it is appended");
    }
    for expected in named("run_2", 1..=3) {
        assert_eq!(next(&mut feed).await, expected);
    }
    let of_run = standing(&log, &filter, Cursor::start()).await;
    assert_eq!(places(&of_run), named("run_2", 1..=3));
    let rest = standing(&log, &filter, of_run[0].cursor).await;
    assert_eq!(places(&rest), named("run_2", 2..=3));
    let none = standing(&log, &EventFilter::new().run("run_3"), Cursor::start()).await;
    assert!(none.is_empty(), "there is no such run: {none:?}");
}

async fn brings_the_events_of_one_session(log: Log) {
    whole(&log, "run_1", "s-1", 60).await;
    whole(&log, "run_2", "s-2", 60).await;
    whole(&log, "run_3", "s-3", 60).await;
    let filter = EventFilter::new().session("s-2");
    let of_session = standing(&log, &filter, Cursor::start()).await;
    assert_eq!(places(&of_session), named("run_2", 1..=2));
    let rest = standing(&log, &filter, of_session[0].cursor).await;
    assert_eq!(places(&rest), named("run_2", [2]));
    let both = standing(&log, &filter.run("run_1"), Cursor::start()).await;
    assert!(both.is_empty(), "all conditions have to hold: {both:?}");
    let none = standing(&log, &EventFilter::new().session("s"), Cursor::start()).await;
    assert!(none.is_empty(), "a beginning is no session: {none:?}");
}

async fn brings_the_events_of_some_types(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let kinds = [warning("a"), attempted("p", None), warning("b"), finished()];
    write(&mut writer, 61, kinds).await.expect("it is appended");
    for (types, expected) in [
        (&["warning"][..], &[2, 4][..]),
        (&["model.*"], &[3]),
        (&["run.*", "model.attempted"], &[1, 3, 5]),
        (&["model"], &[]),
        (&["WARNING", "run._inished", "run.%"], &[]),
        (&["*"], &[1, 2, 3, 4, 5]),
    ] {
        let filter = types.iter().fold(EventFilter::new(), |filter, it| filter.event_type(*it));
        for filter in [filter.clone().run("run_1"), filter] {
            let found = standing(&log, &filter, Cursor::start()).await;
            assert_eq!(places(&found), named("run_1", expected.iter().copied()), "{filter:?}");
        }
    }
}

async fn brings_what_was_erased_as_such(log: Log) {
    whole(&log, "run_1", "s", 60).await;
    let kept = all(&log).await;
    match log.erase(&"run_1".into(), 1).await {
        // Not every log can erase.
        Err(LogError::NotErasable { .. }) => return,
        erased => drop(erased.expect("an event is erased")),
    }
    let left = all(&log).await;
    assert_eq!(left[0].record.payload.text(), None, "what it said does not come");
    assert_eq!((&left[1], left[0].cursor), (&kept[1], kept[0].cursor));
    let rest = standing(&log, &EventFilter::new(), kept[0].cursor).await;
    assert_eq!(rest, kept[1..], "its place is what it was");
}

async fn brings_more_than_a_page(log: Log) {
    let many = FeedPage::MAX_RECORDS * 2 + 1;
    let mut writer = open(&log, "run_1", "s", 60).await;
    write(&mut writer, 61, (1..many).map(|_| warning("x"))).await.expect("it is appended");
    let last = u64::try_from(many).expect("it is a number");
    for filter in [EventFilter::new(), EventFilter::new().run("run_1")] {
        let mut feed = followed(&log, filter, Cursor::start()).await;
        for expected in named("run_1", 1..=last) {
            assert_eq!(next(&mut feed).await, expected);
        }
    }
}

async fn keeps_pages_small(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let long = "x".repeat(FeedPage::MAX_BYTES / 3);
    let short = (0..=FeedPage::MAX_RECORDS).map(|_| warning("x"));
    let kinds = (0..7).map(|_| warning(&long)).chain(short);
    write(&mut writer, 61, kinds).await.expect("it is appended");
    for filter in [EventFilter::new(), EventFilter::new().run("run_1")] {
        let (mut cursor, mut is_end) = (Cursor::start(), false);
        while !is_end {
            let page = log.read_feed(&filter, &cursor).await.expect("a page is read");
            let bytes = page.records.iter().map(|it| it.record.payload.text().map_or(0, str::len));
            let before_last: usize = bytes.rev().skip(1).sum();
            assert!(before_last < FeedPage::MAX_BYTES, "{before_last} bytes and one more event");
            assert!(page.records.len() <= FeedPage::MAX_RECORDS, "{}", page.records.len());
            (cursor, is_end) = (page.cursor, page.is_end);
        }
    }
}

async fn passes_over_what_is_not_wanted(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let mut behind = all(&log).await.last().map_or(Cursor::start(), |last| last.cursor);
    for _ in 0..=FeedPage::MAX_LOOKED_AT / 512 {
        write(&mut writer, 61, (0..512).map(|_| warning("x"))).await.expect("it is appended");
    }
    write(&mut writer, 62, [finished()]).await.expect("it is appended");
    let filter = EventFilter::new().event_type("run.finished");
    let page = log.read_feed(&filter, &behind).await.expect("a page is read");
    assert!(page.records.is_empty() && !page.is_end, "one page looks at no more than so many");
    assert_ne!(page.cursor, behind, "and goes on");
    behind = page.cursor;
    let found = standing(&log, &filter, behind).await;
    assert_eq!(found.len(), 1, "{:?}", places(&found));
}

async fn refuses_a_cursor_behind_the_end(log: Log) {
    for _ in 0..2 {
        let end = all(&log).await.last().and_then(|last| last.cursor.number()).unwrap_or(0);
        let beyond = Cursor::behind(end + 1, None);
        for filter in [EventFilter::new(), EventFilter::new().run("run_1")] {
            let refused = follow(Arc::clone(&log), filter, beyond).await;
            let is_it = matches!(&refused, Err(LogError::ForeignCursor(it)) if *it == beyond);
            assert!(is_it, "{refused:?}");
        }
        whole(&log, &format!("run_{end}"), &format!("s-{end}"), 60).await;
    }
}

async fn refuses_a_cursor_of_another_log(log: Log) {
    whole(&log, "run_1", "s", 60).await;
    let first = all(&log).await[0].cursor;
    let other = Cursor::behind(first.number().unwrap_or(0), Some(&Hash([7; 32])));
    let refused = follow(Arc::clone(&log), EventFilter::new(), other).await;
    assert!(matches!(&refused, Err(LogError::ForeignCursor(it)) if *it == other), "{refused:?}");
}

async fn loses_nothing_with_a_wait_that_is_dropped(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let mut feed = followed(&log, EventFilter::new(), Cursor::start()).await;
    let mut seen = Vec::new();
    for patience in 0..20 {
        write(&mut writer, 61, [warning("x")]).await.expect("it is appended");
        let turns = Box::pin(async {
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
        });
        if let Either::Left((got, _)) = select(Box::pin(feed.next()), turns).await {
            seen.push(place(&got.expect("an event is read")));
        }
    }
    while seen.len() < 21 {
        seen.push(next(&mut feed).await);
    }
    assert_eq!(seen, named("run_1", 1..=21));
}

async fn wakes_each_follower(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let mut feeds = Vec::new();
    for filter in [EventFilter::new(), EventFilter::new().run("run_1"), EventFilter::new()] {
        feeds.push(followed(&log, filter, Cursor::now()).await);
    }
    for seq in 2..5 {
        let waiting = join_all(feeds.iter_mut().map(next));
        let append = async {
            tokio::task::yield_now().await;
            write(&mut writer, 61, [warning("x")]).await.expect("it is appended");
        };
        let (read, ()) = woken("an append wakes each follower", join(waiting, append)).await;
        assert_eq!(read, vec![("run_1".to_owned(), seq); 3]);
    }
}

async fn brings_each_event_of_many_writers_once(log: Log) {
    const EVENTS: u64 = 25;
    let mut feed = followed(&log, EventFilter::new(), Cursor::start()).await;
    let writers = (0..8).map(|number| {
        let log = Arc::clone(&log);
        tokio::spawn(async move {
            let mut writer = open(&log, &format!("run_{number}"), &format!("s-{number}"), 60).await;
            for _ in 1..EVENTS {
                write(&mut writer, 61, [warning("x")]).await.expect("it is appended");
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut by_run: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut order = Vec::new();
    for _ in 0..8 * EVENTS {
        let (run, seq) = next(&mut feed).await;
        by_run.entry(run.clone()).or_default().push(seq);
        order.push((run, seq));
    }
    assert!(join_all(writers).await.iter().all(Result::is_ok));
    for (run, seqs) in &by_run {
        assert_eq!(*seqs, (1..=EVENTS).collect::<Vec<_>>(), "{run}");
    }
    assert_eq!(order, places(&all(&log).await), "live and read later alike");
    let rest = standing(&log, &EventFilter::new(), feed.cursor()).await;
    assert!(rest.is_empty(), "there is no more: {rest:?}");
}
