//! Checks of the lists of runs.

use std::sync::Arc;

use backstop_event_log::{AttemptFilter, FailedAttempts, RunFilter, RunState};
use layer0::code;
use layer0::event::{RunParked, RunStarted};
use layer0::id::RunId;

use super::history::{
    Log, at, attempted, begin, dispatched, failed, finished, following, input, open, send, started,
    stopped, whole, write,
};

async fn listed(log: &Log, session: Option<&str>, limit: Option<u32>) -> Vec<String> {
    let mut filter = RunFilter::new();
    filter.session = session.map(Into::into);
    filter.limit = limit;
    found(log, filter).await
}

async fn found(log: &Log, filter: RunFilter) -> Vec<String> {
    let runs = log.runs(filter).await.expect("runs are listed");
    runs.iter().map(|run| run.run.to_string()).collect()
}

/// Two sessions, whose runs began alternately.
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

/// Runs of two agents: one is open, one completed, one was stopped and two failed.
async fn fill_with_ends(log: &Log) {
    let of = |agent: &str, session: &str| {
        let mut start = started(session);
        start.agent.name = agent.into();
        start
    };
    let run = async |run: &str, ms: i64, start: RunStarted| {
        begin(log, run, ms, start).await.expect("it begins")
    };
    drop(run("run_10", 10, of("a", "s-1")).await);
    let mut writer = run("run_11", 20, of("b%", "s-2")).await;
    write(&mut writer, 21, [failed(code::PROVIDER_TIMEOUT)]).await.expect("it ends");
    let mut writer = run("run_2", 30, of("a", "s-3")).await;
    write(&mut writer, 31, [failed(code::GUARD_LOOP_DETECTED)]).await.expect("it ends");
    let mut writer = run("run_3", 40, of("b%", "s-4")).await;
    write(&mut writer, 41, [stopped(code::RUN_CANCELLED)]).await.expect("it ends");
    let mut writer = run("run__", 50, dispatched("s-1", "run_10")).await;
    write(&mut writer, 51, [finished()]).await.expect("it ends");
}

pub(super) async fn lists_the_runs_of_one_agent(log: Log) {
    fill_with_ends(&log).await;
    assert_eq!(found(&log, RunFilter::new().agent("a")).await, ["run_2", "run_10"]);
    assert_eq!(found(&log, RunFilter::new().agent("b%")).await, ["run_3", "run_11"]);
    assert!(found(&log, RunFilter::new().agent("b")).await.is_empty(), "a name, no beginning");
    assert!(found(&log, RunFilter::new().agent("%")).await.is_empty(), "a name is no pattern");
}

pub(super) async fn lists_the_runs_in_some_states(log: Log) {
    fill_with_ends(&log).await;
    let in_state = RunFilter::new().state(RunState::Failed);
    assert_eq!(found(&log, in_state.clone()).await, ["run_2", "run_11"]);
    assert_eq!(found(&log, in_state.clone().limit(1)).await, ["run_2"], "the newest of them");
    let either = in_state.state(RunState::Running);
    assert_eq!(found(&log, either).await, ["run_2", "run_11", "run_10"]);
    assert!(found(&log, RunFilter::new().state(RunState::WaitingApproval)).await.is_empty());
    let mut writer = open(&log, "run_p", "s-9", 60).await;
    let parked = RunParked::new(at(90), code::PROVIDER_RATE_LIMITED, "later");
    write(&mut writer, 61, [parked.into()]).await.expect("it is appended");
    assert_eq!(found(&log, RunFilter::new().state(RunState::Parked)).await, ["run_p"]);
    assert!(send(&*log, input("run_p", "hear"), 62).await, "a parked run is open");
    assert!(begin(&log, "run_q", 63, started("s-9")).await.is_err(), "so its session is busy");
}

pub(super) async fn lists_the_runs_with_a_reason(log: Log) {
    fill_with_ends(&log).await;
    let with = |reason: &str| RunFilter::new().reason(reason);
    assert_eq!(found(&log, with("provider.timeout")).await, ["run_11"]);
    assert_eq!(found(&log, with("provider.*")).await, ["run_11"], "a family");
    assert_eq!(found(&log, with("run.*")).await, ["run_3"], "what was stopped too");
    assert_eq!(found(&log, with("*")).await, ["run_3", "run_2", "run_11"], "any reason");
    assert!(found(&log, with("provider")).await.is_empty(), "a code, no beginning");
}

pub(super) async fn lists_the_runs_of_some_time(log: Log) {
    fill_with_ends(&log).await;
    assert_eq!(found(&log, RunFilter::new().from(at(40))).await, ["run__", "run_3"]);
    assert_eq!(found(&log, RunFilter::new().to(at(20))).await, ["run_10"], "not at its end");
    let within = RunFilter::new().from(at(20)).to(at(40));
    assert_eq!(found(&log, within).await, ["run_2", "run_11"], "by when they began");
}

pub(super) async fn lists_the_runs_whose_id_begins_so(log: Log) {
    fill_with_ends(&log).await;
    let of = |prefix: &str| RunFilter::new().id_prefix(prefix);
    assert_eq!(found(&log, of("run_1")).await, ["run_11", "run_10"]);
    assert_eq!(found(&log, of("run_1").limit(1)).await, ["run_11"], "the newest");
    assert_eq!(found(&log, of("run_10")).await, ["run_10"]);
    assert_eq!(found(&log, of("run__")).await, ["run__"], "a beginning is no pattern");
    assert!(found(&log, of("un_1")).await.is_empty());
    assert_eq!(found(&log, of("")).await.len(), 5);
}

pub(super) async fn lists_the_runs_that_none_dispatched(log: Log) {
    fill_with_ends(&log).await;
    let roots = RunFilter::new().roots();
    assert_eq!(found(&log, roots.clone()).await, ["run_3", "run_2", "run_11", "run_10"]);
    assert_eq!(found(&log, roots.session("s-1")).await, ["run_10"], "all conditions hold");
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

/// Begins runs with labels, each in a session of its own.
async fn file(log: &Log, runs: &[(&str, &[(&str, &str)])]) {
    for ((run, labels), ms) in runs.iter().zip(10..) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut start = started(run);
        start.labels = Arc::new(labels.collect());
        drop(begin(log, run, ms, start).await.expect("it begins"));
    }
}

async fn filed(log: &Log, filter: RunFilter) -> Vec<String> {
    let runs = log.runs(filter).await.expect("runs are listed");
    runs.iter().map(|run| run.run.to_string()).collect()
}

pub(super) async fn lists_the_runs_of_a_label(log: Log) {
    let acme: &[_] = &[("tenant", "acme"), ("env", "prod")];
    let odd: &[_] = &[("tenant", "a%e'\""), ("x", "")];
    file(&log, &[("run_d", acme), ("run_a", odd), ("run_c", &[]), ("run_b", &acme[..1])]).await;
    let label = |key, value| RunFilter::new().label(key, value);
    assert_eq!(filed(&log, label("tenant", "acme")).await, ["run_b", "run_d"], "newest first");
    assert_eq!(filed(&log, label("tenant", "acme").limit(1)).await, ["run_b"]);
    let both = label("tenant", "acme").label("env", "prod");
    assert_eq!(filed(&log, both.clone()).await, ["run_d"], "under all of them");
    assert_eq!(filed(&log, label("tenant", "acme").session("run_d")).await, ["run_d"]);
    assert_eq!(filed(&log, label("tenant", "a%e'\"")).await, ["run_a"], "a value is no pattern");
    assert_eq!(filed(&log, label("x", "")).await, ["run_a"]);
    for (key, value) in [("tenant", ""), ("env", "acme"), ("acme", "tenant"), ("t%", "acme")] {
        assert!(filed(&log, label(key, value)).await.is_empty(), "{key}={value}");
    }
    assert!(filed(&log, both.session("run_b")).await.is_empty());
}

pub(super) async fn counts_failed_attempts(log: Log) {
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    let (timeout, limited) = (Some(code::PROVIDER_TIMEOUT), Some(code::PROVIDER_RATE_LIMITED));
    let mut writer = open(&log, "run_1", "s-1", 10).await;
    for (ms, provider, code) in [
        (20, "a", timeout),
        (30, "a", timeout),
        (40, "a", None),
        (50, "b", limited),
        (DAY + 5, "a", timeout),
    ] {
        write(&mut writer, ms, [attempted(provider, code)]).await.expect("it is appended");
    }
    let mut writer = open(&log, "run_2", "s-2", 60).await;
    write(&mut writer, 70, [attempted("a", timeout)]).await.expect("it is appended");
    let counted = async |filter| {
        let counts = log.failed_attempts(filter).await.expect("it counts");
        let count = |it: &FailedAttempts| {
            (it.day.as_millis(), it.provider.to_string(), it.code.to_string(), it.attempts)
        };
        counts.iter().map(count).collect::<Vec<_>>()
    };
    let row = |day: i64, provider: &str, code: Option<&str>, attempts: u64| {
        (day, provider.to_owned(), code.unwrap_or_default().to_owned(), attempts)
    };
    let first_day = [row(0, "a", timeout, 3), row(0, "b", limited, 1)];
    let all = AttemptFilter::new;
    assert_eq!(counted(all().to(at(DAY))).await, first_day);
    assert_eq!(counted(all().from(at(DAY))).await, [row(DAY, "a", timeout, 1)]);
    assert_eq!(counted(all()).await.len(), 3);
    let by_its_own_time = counted(all().from(at(30)).to(at(50))).await;
    assert_eq!(by_its_own_time, [row(0, "a", timeout, 1)]);
    let one = [row(0, "a", timeout, 1)];
    for (filter, expected) in [
        (all().runs(["run_2"]), &one[..]),
        (all().runs(["run_2", "run_1", "run_2"]).to(at(DAY)), &first_day),
        (all().runs(["run"]), &[]),
        (all().runs(Vec::<RunId>::new()), &[]),
        (all().code("provider.rate_limited"), &first_day[1..]),
        (all().code("provider.*").to(at(DAY)), &first_day),
        (all().code("provider.r*"), &first_day[1..]),
        (all().code("provider"), &[]),
        (all().code("provider.t*").runs(["run_2"]), &one),
    ] {
        assert_eq!(counted(filter.clone()).await, expected, "{filter:?}");
    }
}
