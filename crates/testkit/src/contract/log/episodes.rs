//! Checks that an ended run can be reopened, unless its session continued without it.

use std::sync::Arc;

use backstop_event_log::{LogError, RunState};
use futures_util::future::join_all;
use layer0::code;

use super::history::{
    Log, begin, dispatched, failed, following, open, records, reopen, reopened, resume, started,
    stopped, warning, whole, write,
};

/// Writes a failed run of a session.
async fn broken(log: &Log, run: &str, session: &str, ms: i64) {
    let mut writer = open(log, run, session, ms).await;
    write(&mut writer, ms + 1, [failed(code::PROVIDER_TIMEOUT)]).await.expect("it ends");
}

pub(super) async fn a_reopened_run_is_open_until_it_ends_again(log: Log) {
    broken(&log, "run_1", "s", 40).await;
    let mut writer = resume(&log, "run_1").await;
    write(&mut writer, 1_000, [reopened(code::PROVIDER_TIMEOUT)]).await.expect("it is opened");
    let known = log.summary(&"run_1".into()).await.expect("it is read").expect("it is known");
    assert_eq!(&known, writer.summary(), "a summary is kept whole");
    assert_eq!((known.state, known.outcome), (RunState::Running, None));
    assert_eq!((known.reason, known.finished_at), (None, None));
    let other = log.claim(&"run_1".into()).await;
    assert!(matches!(other, Err(LogError::Claimed(_))), "it has a writer: {other:?}");
    let busy = begin(&log, "run_2", 1_001, following("s", "run_1")).await;
    assert!(matches!(busy, Err(LogError::SessionBusy { .. })), "it is open: {busy:?}");
    write(&mut writer, 1_007, [warning("at work")]).await.expect("it goes on");
    assert_eq!(writer.summary().usage.wall_ms, 7, "the time in which it was over does not count");
    write(&mut writer, 1_008, [stopped(code::RUN_CANCELLED)]).await.expect("it ends");
    let known = log.summary(&"run_1".into()).await.expect("it is read").expect("it is known");
    assert_eq!(known.state, RunState::Finished);
    assert_eq!(known.reason.as_ref().map(layer0::Code::as_str), Some(code::RUN_CANCELLED));
    assert_eq!(known.raised.map(|raised| raised.max_model_calls), Some(Some(5)));
    drop(writer);
    drop(log.claim(&"run_1".into()).await.expect("a run that is over is free"));
    drop(begin(&log, "run_2", 1_010, following("s", "run_1")).await.expect("it can be followed"));
}

pub(super) async fn refuses_to_reopen_a_run_that_is_followed(log: Log) {
    broken(&log, "run_1", "s", 40).await;
    let mut next = begin(&log, "run_2", 50, following("s", "run_1")).await.expect("it follows");
    for is_over in [false, true] {
        let refused = reopen(&log, "run_1", 60).await;
        let Err(LogError::Followed { run, by, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((run.as_str(), by.as_str()), ("run_1", "run_2"));
        if !is_over {
            write(&mut next, 61, [failed(code::PROVIDER_TIMEOUT)]).await.expect("it ends");
        }
    }
    assert_eq!(records(&log, "run_1").await.len(), 2, "nothing was written");
    let known = log.summary(&"run_1".into()).await.expect("it is read").expect("it is known");
    assert_eq!(known.state, RunState::Failed);
    drop(next);
    reopen(&log, "run_2", 70).await.expect("nothing follows the last run");
}

pub(super) async fn a_dispatched_run_is_reopened_beside_others(log: Log) {
    whole(&log, "run_1", "s", 40).await;
    let below = begin(&log, "run_2", 50, dispatched("s", "run_1")).await;
    let mut below = below.expect("it shares the session");
    write(&mut below, 51, [failed(code::PROVIDER_TIMEOUT)]).await.expect("it ends");
    drop(below);
    drop(begin(&log, "run_3", 52, following("s", "run_1")).await.expect("it follows"));
    reopen(&log, "run_2", 60).await.expect("it is no part of the transcript");
    drop(begin(&log, "run_4", 61, started("s-2")).await.expect("another session is free"));
}

/// A following run and the reopening of the one before race; one of them comes first.
pub(super) async fn reopens_or_follows_never_both(log: Log) {
    for round in 0..8 {
        let (session, run) = (format!("s-{round}"), format!("run_{round}_0"));
        broken(&log, &run, &session, 40).await;
        let opens = || {
            let (log, run) = (Arc::clone(&log), run.clone());
            tokio::spawn(async move { reopen(&log, &run, 50).await.map(drop) })
        };
        // Alternates between the first and the last request.
        let first = (round % 2 == 0).then(opens);
        let followers = (1..4).map(|number| {
            let (log, session, run) = (Arc::clone(&log), session.clone(), run.clone());
            tokio::spawn(async move {
                let next = format!("run_{round}_{number}");
                begin(&log, &next, 50, following(&session, &run)).await.map(drop)
            })
        });
        let followers: Vec<_> = followers.collect();
        let opening = first.unwrap_or_else(opens);
        let all = followers.into_iter().chain([opening]);
        let begun = join_all(all).await.into_iter().map(|done| done.expect("none panics"));
        let won = begun.filter(|done| match done {
            Ok(()) => true,
            Err(LogError::Followed { .. } | LogError::SessionBusy { .. }) => false,
            Err(other) => panic!("{other:?}"),
        });
        assert_eq!(won.count(), 1, "round {round}");
    }
}
