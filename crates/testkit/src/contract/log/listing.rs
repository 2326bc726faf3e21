//! Runs are listed.

use event_log::{RunFilter, RunState};

use super::Log;
use super::history::{begin, dispatched, finished, following, open, whole, write};

async fn listed(log: &Log, session: Option<&str>, limit: Option<u32>) -> Vec<String> {
    let filter = RunFilter { session: session.map(Into::into), limit };
    let runs = log.runs(filter).await.expect("runs are listed");
    runs.iter().map(|run| run.run.to_string()).collect()
}

/// Two sessions, whose runs began in turns.
async fn fill(log: &Log) {
    whole(log, "run_c", "s-1", 10).await;
    whole(log, "run_a", "s-2", 20).await;
    drop(begin(log, "run_d", 30, following("s-1", "run_c")).await.expect("it begins"));
    drop(begin(log, "run_b", 40, following("s-2", "run_a")).await.expect("it begins"));
    drop(begin(log, "run_e", 35, dispatched("s-1", "run_d")).await.expect("it begins"));
}

pub(super) async fn lists_runs_newest_first(log: Log) {
    assert!(listed(&log, None, None).await.is_empty(), "a log begins empty");
    fill(&log).await;
    assert_eq!(listed(&log, None, None).await, ["run_b", "run_e", "run_d", "run_a", "run_c"]);
}

pub(super) async fn lists_the_runs_of_one_session(log: Log) {
    fill(&log).await;
    assert_eq!(listed(&log, Some("s-1"), None).await, ["run_e", "run_d", "run_c"]);
    assert_eq!(listed(&log, Some("s-2"), None).await, ["run_b", "run_a"]);
    assert!(listed(&log, Some("s-none"), None).await.is_empty());
    assert!(listed(&log, Some("s-_"), None).await.is_empty(), "a session is no pattern");
}

pub(super) async fn lists_at_most_as_many_as_asked(log: Log) {
    fill(&log).await;
    assert_eq!(listed(&log, None, Some(2)).await, ["run_b", "run_e"], "the newest");
    assert_eq!(listed(&log, Some("s-1"), Some(2)).await, ["run_e", "run_d"], "of the session");
    assert!(listed(&log, None, Some(0)).await.is_empty());
    assert_eq!(listed(&log, None, Some(u32::MAX)).await.len(), 5);
}

pub(super) async fn lists_runs_as_they_stand(log: Log) {
    let mut writer = open(&log, "run_1", "s", 10).await;
    let state = async || {
        let runs = log.runs(RunFilter::default()).await.expect("runs are listed");
        runs.iter().map(|run| (run.state, run.last_seq)).collect::<Vec<_>>()
    };
    assert_eq!(state().await, [(RunState::Running, 1)]);
    write(&mut writer, 11, [finished()]).await.expect("it is appended");
    assert_eq!(state().await, [(RunState::Finished, 2)]);
}
