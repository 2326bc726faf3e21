//! Each contract is worth what its suite notices: subjects that break one promise each, and the trial
//! that notices it.

/// Lists what a subject may do wrong, each with the trial that notices it.
macro_rules! defects {
    ($($defect:ident => $trial:ident,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Defect {
            $($defect,)+
        }

        const DEFECTS: &[(Defect, &str)] = &[$((Defect::$defect, stringify!($trial)),)+];
    };
}

use defects;

mod approvals;
mod errors;
mod feed;
mod log;
mod memory;
mod operator;
mod orchestrator;
mod provider;
mod reopened;
mod results;
mod start_keys;
mod state;
mod subscriptions;
mod tool;
mod transcripts;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use backstop_testkit::contract::Suite;

/// A subject that hangs is noticed by this; a trial it cuts short for no reason is one more that fails.
const LIMIT: Duration = Duration::from_secs(10);
const THREADS: usize = 4;

/// Runs the suite on a subject with each defect, and says which were not noticed by their trial.
fn unnoticed<D: Copy + Debug + Sync>(
    planted: &[(D, &str)],
    suite: impl Fn(D) -> Suite + Sync,
) -> Vec<String> {
    let left = Mutex::new(planted.iter());
    let said = Mutex::new(Vec::new());
    let run = |defect, only: Option<&str>| {
        let trials = suite(defect).time_limit(LIMIT).into_iter();
        let trials = trials.filter(|trial| only.is_none_or(|only| trial.name() == only));
        trials.filter_map(|trial| trial.run_blocking().err()).collect::<Vec<_>>()
    };
    let work = || {
        loop {
            let Some((defect, trial)) = left.lock().unwrap().next() else { return };
            if !run(*defect, Some(trial)).is_empty() {
                continue;
            }
            let what = match &*run(*defect, None) {
                [] => format!("{defect:?} survives"),
                others => format!("{defect:?} is not noticed by {trial}, but: {others:?}"),
            };
            said.lock().unwrap().push(what);
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    said.into_inner().unwrap()
}

/// Asserts that each defect is noticed by its trial, and that each trial notices a defect.
#[track_caller]
fn check<D: Copy + Debug + Sync>(planted: &[(D, &str)], suite: impl Fn(D) -> Suite + Sync) {
    let (first, _) = planted[0];
    let idle: Vec<_> = suite(first)
        .into_iter()
        .map(|trial| trial.name())
        .filter(|name| !planted.iter().any(|(_, trial)| trial == name))
        .collect();
    assert!(idle.is_empty(), "no planted defect is for {idle:?}");
    let said = unnoticed(planted, suite);
    assert!(said.is_empty(), "{}", said.join("\n"));
}

/// A defect that no trial notices is reported as such.
#[test]
fn a_surviving_defect_is_reported() {
    let sound = |_| {
        backstop_testkit::contract::event_log(async || Arc::new(backstop::MemoryLog::new()) as _)
    };
    let said = unnoticed(&[("a defect that is none", "keeps_what_is_appended")], sound);
    assert_eq!(said, ["\"a defect that is none\" survives"]);
    let other = unnoticed(&[(log::Defect::ListsAllRuns, "keeps_what_is_appended")], log::suite);
    assert!(other[0].contains("is not noticed by keeps_what_is_appended, but"), "{other:?}");
}
