//! A real process, killed for real around every append, and another one that goes on.

use backstop_event_log::Log;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use backstop::event_log::{Decision, LogError, RunState};
use backstop::layer0::Timestamp;
use backstop::layer0::event::{Event, EventKind};
use backstop::layer0::id::RunId;
use backstop::react::{Finish, replay};
use backstop::{Database, Durability, EventLog, PostgresDatabase, read_events};
use backstop_testkit::{DatabasesInTurn, PostgresServer};

const RUN: &str = "run_mortal";

/// Where a run is kept, and what its tools note.
pub(super) struct Folder {
    folder: tempfile::TempDir,
    /// The URL of a PostgreSQL database; without one, there is an SQLite file in the folder.
    server: Option<String>,
}

/// An open database.
enum Opened {
    File(Database),
    Server(PostgresDatabase),
}

impl Opened {
    fn log(&self) -> Arc<dyn EventLog> {
        match self {
            Self::File(database) => Arc::new(database.log()),
            Self::Server(database) => Arc::new(database.log()),
        }
    }

    async fn close(&self) {
        match self {
            Self::File(database) => database.close().await,
            Self::Server(database) => database.close().await,
        }
    }
}

impl Folder {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), server: None }
    }

    /// A folder beside the next database of a server.
    async fn beside(databases: &DatabasesInTurn<'_>) -> Self {
        Self { server: Some(databases.next().await), ..Self::new() }
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    async fn open(&self) -> Opened {
        match &self.server {
            Some(url) => Opened::Server(PostgresDatabase::connect(url).await.unwrap()),
            None => {
                Opened::File(Database::open(self.path("a.db"), Durability::Normal).await.unwrap())
            }
        }
    }

    async fn open_read_only(&self) -> Opened {
        match &self.server {
            Some(_) => self.open().await,
            None => Opened::File(Database::open_read_only(self.path("a.db")).await.unwrap()),
        }
    }

    pub(super) fn mortal(&self, args: &[&str]) -> (ExitStatus, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mortal"));
        let file = self.path("a.db");
        let database = self.server.as_deref().map_or(file.as_os_str(), OsStr::new);
        command.arg(database).arg(self.path("effects")).args(args);
        let output = command.output().unwrap();
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Returns how often each call was executed.
    pub(super) fn effects(&self) -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(self.path("effects")).unwrap_or_default();
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    async fn events(&self) -> Vec<Event> {
        self.events_of(RUN).await
    }

    async fn events_of(&self, run: &str) -> Vec<Event> {
        let database = self.open_read_only().await;
        let read = read_events(&*database.log(), &RunId::from(run)).await;
        database.close().await;
        match read {
            Ok((_, events)) => events,
            Err(LogError::NotFound(_)) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Resumes until the run is over; approves what it asks.
    async fn resume(&self) {
        self.resume_run(RUN).await;
    }

    async fn resume_run(&self, run: &str) {
        loop {
            let (status, said) = self.mortal(&["resume", run]);
            match status.code() {
                Some(0) => return,
                Some(4) => self.approve().await,
                _ => panic!("{status}: {said}"),
            }
        }
    }

    /// Resumes a run that may wait already.
    pub(super) async fn resume_after_approval(&self, run: &str) {
        self.approve().await;
        self.resume_run(run).await;
    }

    pub(super) async fn approve(&self) {
        let database = self.open().await;
        let log = database.log();
        for open in log.open_approvals().await.unwrap() {
            assert!(
                log.decide(&open.id, Decision::approve("ops"), Timestamp::default()).await.unwrap()
            );
        }
        database.close().await;
    }
}

pub(super) fn of_calls<'e>(events: &'e [Event], kind: &str) -> Vec<&'e str> {
    let ids = events.iter().filter(|event| event.kind.event_type() == kind);
    ids.map(|event| match &event.kind {
        EventKind::ToolRequested(requested) => requested.call_id.as_str(),
        EventKind::ToolResponded(answer) => answer.call_id.as_str(),
        _ => "",
    })
    .collect()
}

/// What the run came to, without when and how long.
pub(super) fn result(events: &[Event]) -> Vec<String> {
    let answer = |event: &Event| match &event.kind {
        EventKind::ToolResponded(answer) => {
            let failed = answer.error.as_ref().map(|error| (&error.reason, &error.message));
            let output = if answer.ok { answer.output.to_string() } else { String::new() };
            Some(format!("{} {output} {failed:?}", answer.call_id))
        }
        EventKind::RunFinished(finished) => {
            Some(format!("{:?} {}", finished.outcome, finished.output))
        }
        _ => None,
    };
    let mut answers: Vec<String> = events.iter().filter_map(answer).collect();
    answers.sort();
    answers
}

/// Spec: D5, D2, D8, A1
#[tokio::test]
async fn killed_run_goes_on_from_every_append() {
    goes_on_from_appends(async || Folder::new(), 1).await;
}

/// Spec: D5, J2. At some of the appends: each takes a look at a lock, and another one; at all of them with
/// `BACKSTOP_EVERY_KILL`.
#[tokio::test]
async fn killed_run_goes_on_with_postgres() {
    let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
    let Some(server) = server else { return };
    let step = if std::env::var_os("BACKSTOP_EVERY_KILL").is_some() { 1 } else { 5 };
    let databases = server.in_turn();
    goes_on_from_appends(async || Folder::beside(&databases).await, step).await;
}

async fn goes_on_from_appends(new: impl AsyncFn() -> Folder, step: usize) {
    let whole = new().await;
    assert_eq!(whole.mortal(&["run", RUN]).0.code(), Some(4));
    whole.approve().await;
    whole.resume().await;
    let expected = result(&whole.events().await);
    assert_eq!(whole.effects().into_values().max(), Some(1));

    let mut killed = 0;
    for when in ["after", "before"] {
        // From here on, the run waits, and the appends are those of the process that goes on.
        let mut waited: Option<u64> = None;
        for append in (1..).step_by(step) {
            let folder = new().await;
            let (status, said) = folder.mortal(&["run", RUN, when, &append.to_string()]);
            let waits = status.code() == Some(4);
            if waits {
                folder.approve().await;
                let first = *waited.get_or_insert(append);
                let number = (append - first + 1).to_string();
                let (status, said) = folder.mortal(&["resume", RUN, when, &number]);
                if status.code() == Some(0) {
                    break;
                }
                assert_eq!(status.signal(), Some(9), "{when} {append}: {said}");
            } else {
                assert_eq!(status.signal(), Some(9), "{when} {append}: {said}");
            }
            killed += 1;
            let before = folder.events().await;
            let done = folder.effects();
            if before.is_empty() {
                let (status, said) = folder.mortal(&["resume", RUN]);
                assert_eq!(status.code(), Some(1), "{said}");
                assert!(said.contains("no run `run_mortal`"), "{said}");
                continue;
            }
            folder.resume().await;
            let after = folder.events().await;
            check(
                &format!("{when} {append}"),
                &before,
                &done,
                &after,
                &folder.effects(),
                &expected,
            );
            leaves_nothing_behind(folder.folder.path());
            let database = folder.open_read_only().await;
            let replayed = replay(&*database.log(), &RunId::from(RUN)).await.unwrap();
            assert!(matches!(replayed, Some(Finish::Stopped { .. })));
            database.close().await;
        }
    }
    assert!(killed >= 20 / step, "{killed}");
}

fn check(
    place: &str,
    before: &[Event],
    done: &BTreeMap<String, usize>,
    after: &[Event],
    effects: &BTreeMap<String, usize>,
    expected: &[String],
) {
    let recovered = after.iter().filter(|e| matches!(e.kind, EventKind::RunRecovered(_))).count();
    let last = &before.last().unwrap().kind;
    let died = !matches!(last, EventKind::RunWaiting(_) | EventKind::RunFinished(_));
    assert_eq!(recovered, usize::from(died), "{place}");
    let mut answers = of_calls(after, "tool.responded");
    answers.sort_unstable();
    assert_eq!(answers, ["c1", "c2", "c3", "c4", "c5"], "{place}: one answer per call");

    let answered = of_calls(before, "tool.responded");
    let requested = of_calls(before, "tool.requested");
    let mut acted = false;
    for call in ["c1", "c2", "c3", "c4", "c5"] {
        let times = |effects: &BTreeMap<String, usize>| effects.get(call).copied().unwrap_or(0);
        let (first, all) = (times(done), times(effects));
        let interrupted = after.iter().any(|event| match &event.kind {
            EventKind::ToolResponded(answer) if answer.call_id.as_str() == call => {
                answer.error.as_ref().is_some_and(|e| e.reason.as_str() == "tool.interrupted")
            }
            _ => false,
        });
        if answered.contains(&call) {
            assert_eq!((all, interrupted), (first, false), "{place} {call}: it was complete");
        } else if requested.contains(&call) && matches!(call, "c2" | "c4") {
            assert_eq!((all, interrupted), (first, true), "{place} {call}: it may have acted");
            acted = true;
        } else {
            assert_eq!((all, interrupted), (first + 1, false), "{place} {call}: it runs again");
        }
        assert!(all <= 1 || !matches!(call, "c2" | "c4"), "{place} {call}: it acts at most once");
    }
    if !acted {
        assert_eq!(result(after), expected, "{place}");
    }
}

fn leaves_nothing_behind(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(matches!(name.as_str(), "a.db" | "effects"), "{name} is left behind");
    }
}

/// Spec: D8
#[tokio::test]
async fn two_processes_never_write_the_same_run() {
    let folder = Folder::new();
    assert_eq!(folder.mortal(&["run", RUN, "after", "3"]).0.signal(), Some(9));
    let database = Database::open(folder.path("a.db"), Durability::Normal).await.unwrap();
    let claim = database.log().claim(&RunId::from(RUN)).await.unwrap();
    let before = folder.events().await;
    let (status, said) = folder.mortal(&["resume", RUN]);
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("has a living writer"), "{said}");
    assert_eq!(folder.events().await, before, "nothing was written");
    drop(claim);
    database.close().await;
    folder.resume().await;
    let summary = Database::open_read_only(folder.path("a.db")).await.unwrap();
    let state = summary.log().summary(&RunId::from(RUN)).await.unwrap().unwrap().state;
    assert_eq!(state, RunState::Finished);
}

const BROKEN: &str = "run_broken";

/// How many events are of this type.
fn count(events: &[Event], event_type: &str) -> usize {
    events.iter().filter(|event| event.kind.event_type() == event_type).count()
}

async fn replays(folder: &Folder, run: &str) {
    let database = Database::open_read_only(folder.path("a.db")).await.unwrap();
    assert!(replay(&database.log(), &RunId::from(run)).await.unwrap().is_some());
    database.close().await;
}

/// Spec: D12, D5
#[tokio::test]
async fn killed_reopened_run_goes_on_from_every_append() {
    let whole = Folder::new();
    assert_eq!(whole.mortal(&["run", BROKEN]).0.code(), Some(1));
    assert_eq!(whole.effects().len(), 3, "it failed in its middle");
    assert_eq!(whole.mortal(&["reopen", BROKEN]).0.code(), Some(4));
    whole.approve().await;
    whole.resume_run(BROKEN).await;
    let expected = result(&whole.events_of(BROKEN).await);
    assert_eq!(whole.effects().into_values().collect::<Vec<_>>(), [1; 5]);

    let mut killed = 0;
    for when in ["after", "before"] {
        for append in 1.. {
            let folder = Folder::new();
            assert_eq!(folder.mortal(&["run", BROKEN]).0.code(), Some(1));
            let (status, said) = folder.mortal(&["reopen", BROKEN, when, &append.to_string()]);
            if status.code() == Some(4) {
                break;
            }
            let place = format!("{when} {append}");
            assert_eq!(status.signal(), Some(9), "{place}: {said}");
            killed += 1;
            let before = folder.events_of(BROKEN).await;
            let is_over = matches!(before.last().unwrap().kind, EventKind::RunFailed(_));
            assert_eq!(is_over, place == "before 1", "{place}");
            if is_over {
                assert_eq!(folder.mortal(&["reopen", BROKEN]).0.code(), Some(4), "{place}");
            }
            folder.resume_after_approval(BROKEN).await;
            let events = folder.events_of(BROKEN).await;
            assert_eq!(count(&events, "run.reopened"), 1, "{place}");
            assert_eq!((count(&events, "run.failed"), count(&events, "run.finished")), (1, 1));
            let mut answers = of_calls(&events, "tool.responded");
            answers.sort_unstable();
            assert_eq!(answers, ["c1", "c2", "c3", "c4", "c5"], "{place}: one answer per call");
            let effects = folder.effects();
            for call in ["c1", "c2", "c3", "c4"] {
                assert!(effects.get(call).is_none_or(|times| *times == 1), "{place}: {effects:?}");
            }
            assert_eq!(result(&events), expected, "{place}");
            replays(&folder, BROKEN).await;
        }
    }
    assert!(killed >= 6, "{killed}");
}

/// Spec: D5, D12. A process that dies at the same step each time does not do so for ever.
#[tokio::test]
async fn crash_loop_ends_the_run() {
    let folder = Folder::new();
    assert_eq!(folder.mortal(&["run", RUN, "asking"]).0.signal(), Some(9));
    for crash in 0..2 {
        let (status, said) = folder.mortal(&["resume", RUN, "asking"]);
        assert_eq!(status.signal(), Some(9), "{crash}: {said}");
    }
    let (status, said) = folder.mortal(&["resume", RUN, "asking"]);
    assert_eq!(status.code(), Some(1), "no model is asked any more: {said}");
    let events = folder.events().await;
    assert_eq!(count(&events, "run.recovered"), 3);
    let Some(EventKind::RunFailed(failed)) = events.last().map(|event| &event.kind) else {
        panic!("it ends");
    };
    assert_eq!(failed.reason.as_str(), "run.crash_loop");
    assert!(failed.message.contains("model call 1"), "{}", failed.message);
    assert!(said.contains("died three times"), "{said}");
    replays(&folder, RUN).await;

    // Mended, it goes on in the same record.
    assert_eq!(folder.mortal(&["reopen", RUN]).0.code(), Some(4));
    folder.approve().await;
    folder.resume().await;
    assert_eq!(folder.effects().into_values().max(), Some(1));
    replays(&folder, RUN).await;
}

/// Spec: D5. A step that was completed in between begins the count anew.
#[tokio::test]
async fn progress_between_crashes_is_no_loop() {
    let folder = Folder::new();
    assert_eq!(folder.mortal(&["run", RUN, "asking"]).0.signal(), Some(9));
    for _ in 0..2 {
        assert_eq!(folder.mortal(&["resume", RUN, "asking"]).0.signal(), Some(9));
        // The model answers, then the process dies.
        assert_eq!(folder.mortal(&["resume", RUN, "after", "3"]).0.signal(), Some(9));
    }
    let recovered = count(&folder.events().await, "run.recovered");
    assert!(recovered > 3, "{recovered}");
    folder.resume_after_approval(RUN).await;
    assert_eq!(count(&folder.events().await, "run.failed"), 0);
}

/// Spec: T14, D5. Killed between the effect and its answer: a tool that can say what became of the call is
/// asked; the call is neither made again nor reported as interrupted. Of another tool it is, as it was.
#[tokio::test]
async fn call_killed_behind_its_effect_is_probed() {
    for (run, answer) in [
        ("run_probed", "c1 \"charged\" None"),
        (
            "run_blind",
            "c1  Some((Code(\"tool.interrupted\"), \"Interrupted: may already have acted\"))",
        ),
    ] {
        let folder = Folder::new();
        let (status, said) = folder.mortal(&["run", run, "charging"]);
        assert_eq!(status.signal(), Some(9), "{said}");
        folder.resume_run(run).await;
        let events = folder.events_of(run).await;
        assert_eq!(result(&events)[1], answer);
        assert_eq!(folder.effects(), BTreeMap::from([("c1".to_owned(), 1)]), "{run}");
        let probed = events.iter().filter(|it| it.kind.event_type() == "tool.probed").count();
        assert_eq!(probed, usize::from(run == "run_probed"));
    }
}
