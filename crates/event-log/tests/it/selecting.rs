//! Filters of events and attempts, and positions of cursors.

use std::sync::Arc;

use backstop_event_log::{
    AttemptFilter, Cursor, EventFilter, EventLog, FeedPage, MemoryLog, RunFilter, RunState,
    RunSummary, RunWriter, Seed, read_records,
};
use layer0::event::{Actor, AgentRecord, EventKind, Hash, RunStarted, Warning};
use layer0::{Code, Timestamp};
use serde_json::json;

async fn record(log: &Arc<dyn EventLog>, run: &str, warnings: usize) {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    let agent = AgentRecord::new("demo", "d", json!({ "name": "demo" }));
    let started = RunStarted::new("hello", format!("ses_{run}").into(), agent);
    let warnings = (0..warnings).map(|_| EventKind::from(Warning::new("w")));
    for kind in std::iter::once(EventKind::from(started)).chain(warnings) {
        writer.stage(&Seed::new("test"), Timestamp::default(), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

/// Spec: D14. All conditions have to hold; of types, one.
#[tokio::test]
async fn filter_wants_each_of_its_conditions() {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    record(&log, "run_1", 1).await;
    let records = read_records(&*log, &"run_1".into()).await.unwrap();
    let [started, warning] = &records.1[..] else { panic!("two events") };
    let (run, session) = ("run_1".into(), "ses_run_1".into());
    for (filter, of_start, of_warning) in [
        (EventFilter::new(), true, true),
        (EventFilter::new().event_type("warning"), false, true),
        (EventFilter::new().event_type("warn"), false, false),
        (EventFilter::new().event_type("run.*"), true, false),
        (EventFilter::new().event_type("run.*").event_type("warning"), true, true),
        (EventFilter::new().run("run_1").session("ses_run_1"), true, true),
        (EventFilter::new().run("run_2"), false, false),
        (EventFilter::new().run("run_1").session("ses_run_2"), false, false),
    ] {
        assert_eq!(filter.matches(&run, &session, started), of_start, "{filter:?}");
        assert_eq!(filter.matches(&run, &session, warning), of_warning, "{filter:?}");
    }
}

/// Spec: D4. All conditions have to hold.
#[test]
fn run_is_listed_by_each_of_its_parts() {
    let mut run = RunSummary::new("run_1".into());
    run.session = "ses_1".into();
    run.agent = "demo".into();
    run.state = RunState::Failed;
    run.reason = Some(Code::new("provider.timeout"));
    run.started_at = Timestamp::from_millis(10);
    run.labels = Arc::new([("tenant".to_owned(), "acme".to_owned())].into());
    let at = Timestamp::from_millis;
    let all = RunFilter::new;
    for (filter, is_listed) in [
        (all(), true),
        (all().session("ses_1").agent("demo"), true),
        (all().session("ses_2"), false),
        (all().agent("other"), false),
        (all().state(RunState::Running).state(RunState::Failed), true),
        (all().state(RunState::Running), false),
        (all().reason("provider.*"), true),
        (all().reason("provider.timeout"), true),
        (all().reason("provider.transient"), false),
        (all().from(at(10)).to(at(11)), true),
        (all().from(at(11)), false),
        (all().to(at(10)), false),
        (all().id_prefix("run_"), true),
        (all().id_prefix("sub_"), false),
        (all().roots(), true),
        (all().segments(), false),
        (all().label("tenant", "acme"), true),
        (all().label("tenant", "acme").label("tier", "1"), false),
    ] {
        assert_eq!(filter.matches(&run), is_listed, "{filter:?}");
    }
    run.parent = Some("run_0".into());
    assert!(all().matches(&run) && !all().roots().matches(&run));
    run.run = "sub_tell.1".into();
    assert!(!all().matches(&run) && all().segments().matches(&run));
    assert!(!all().reason("provider.*").segments().matches(&RunSummary::new("sub_a.1".into())));
    assert_eq!(
        (all().reason("provider.*").family(), all().reason("a.b").family()),
        (Some("provider."), None)
    );
    assert_eq!((all().limit(3).limit, all().family()), (Some(3), None));
}

/// From a time on, and before a time.
#[test]
fn attempts_are_counted_between_two_moments() {
    let at = Timestamp::from_millis;
    let filter = AttemptFilter::new().code("provider.*").from(at(10)).to(at(20));
    let code = Code::new("provider.timeout");
    let counted = [9, 10, 19, 20].map(|ms| filter.matches(&code, at(ms)));
    assert_eq!(counted, [false, true, true, false]);
    assert!(!filter.matches(&Code::new("tool.timeout"), at(15)));
}

/// Spec: X2. A cursor without a mark fits any event, one with a mark its own.
#[test]
fn cursor_fits_the_event_it_stands_behind() {
    let (one, other) = (Hash([1; 32]), Hash([2; 32]));
    for cursor in [Cursor::start(), Cursor::now(), Cursor::behind(7, None)] {
        assert!(cursor.fits(&one), "{cursor}");
    }
    let marked = Cursor::behind(7, Some(&one));
    assert!(marked.fits(&one) && !marked.fits(&other));
    for cursor in [Cursor::start(), Cursor::now(), Cursor::behind(7, None), marked] {
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
}

/// Spec: D9, X2. A page ends at its bound, and the next one begins there.
#[tokio::test]
async fn pages_of_a_feed_are_bounded() {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let events = FeedPage::MAX_RECORDS + 3;
    record(&log, "run_1", events - 1).await;
    let page = log.read_feed(&EventFilter::new(), &Cursor::start()).await.unwrap();
    assert_eq!((page.records.len(), page.is_end), (FeedPage::MAX_RECORDS, false));
    let page = log.read_feed(&EventFilter::new(), &page.cursor).await.unwrap();
    assert_eq!((page.records.len(), page.is_end), (3, true));
}

/// Spec: D9, X2. A page ends also after many bytes, and after many events that nobody wants.
#[tokio::test]
async fn pages_of_a_feed_cost_no_more() {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let mut writer = RunWriter::new(Arc::clone(&log), "run_1".into());
    let mut stage = |text: String| {
        let kind = Warning::new(text).into();
        writer.stage(&Seed::new("test"), Timestamp::default(), Actor::Runtime, None, kind);
    };
    (0..3).for_each(|_| stage("x".repeat(FeedPage::MAX_BYTES * 2 / 3)));
    (0..FeedPage::MAX_LOOKED_AT).for_each(|_| stage(String::new()));
    writer.commit().await.unwrap();
    let page = log.read_feed(&EventFilter::new(), &Cursor::start()).await.unwrap();
    assert_eq!((page.records.len(), page.is_end), (2, false), "the last one may exceed it");
    let none = EventFilter::new().event_type("run.failed");
    let page = log.read_feed(&none, &Cursor::start()).await.unwrap();
    assert_eq!((page.records.len(), page.is_end), (0, false));
    assert_eq!(page.cursor.number(), u64::try_from(FeedPage::MAX_LOOKED_AT).ok());
    let page = log.read_feed(&none, &page.cursor).await.unwrap();
    assert_eq!((page.records.len(), page.is_end), (0, true));
}
