//! Checks that a run has one writer.

use std::sync::Arc;

use backstop_event_log::{Claim, LogError, RunSummary, RunWriter, read_events};
use futures_util::future::join_all;
use layer0::id::RunId;

use super::history::{
    Log, begin, finished, following, input, open, records, resume, send, started, warning, whole,
    write,
};
use crate::contract::approvals::asked;

async fn known(log: &Log, run: &str) -> RunSummary {
    log.summary(&run.into()).await.expect("it is read").expect("the run is known")
}

pub(super) async fn refuses_a_second_writer(log: Log) {
    let mut first = open(&log, "run_1", "s", 30).await;
    let stale = Claim::new(Claim::FIRST, ());
    let mut second = RunWriter::resume(Arc::clone(&log), known(&log, "run_1").await, stale);
    write(&mut first, 31, [warning("mine")]).await.expect("the first one writes");
    let refused = write(&mut second, 32, [warning("a"), warning("b")]).await;
    assert!(matches!(refused, Err(LogError::Conflict { seq: 2, .. })), "{refused:?}");
    assert_eq!(records(&log, "run_1").await.len(), 2);
    write(&mut first, 34, [finished()]).await.expect("the writer goes on");
}

pub(super) async fn refuses_a_run_that_exists(log: Log) {
    whole(&log, "run_1", "s", 30).await;
    let mut again = RunWriter::new(Arc::clone(&log), "run_1".into());
    let refused = write(&mut again, 33, [started("s-2").into()]).await;
    assert!(matches!(refused, Err(LogError::Conflict { seq: 1, .. })), "{refused:?}");
    assert_eq!(records(&log, "run_1").await.len(), 2);
    drop(again);
    assert!(known(&log, "run_1").await.finished_at.is_some(), "it is what it was");
}

/// The records in between could not be restored later.
pub(super) async fn refuses_a_gap(log: Log) {
    let mut lost = RunWriter::without_log("run_1".into());
    write(&mut lost, 30, [started("s").into(), warning("lost")]).await.expect("no log refuses");
    let writer = open(&log, "run_1", "s", 30).await;
    drop(writer);
    let claim = log.claim(&"run_1".into()).await.expect("the run is free");
    let mut ahead = RunWriter::resume(Arc::clone(&log), lost.summary().clone(), claim);
    let refused = write(&mut ahead, 31, [warning("after a gap")]).await;
    assert!(matches!(refused, Err(LogError::Conflict { seq: 3, .. })), "{refused:?}");
    assert_eq!(records(&log, "run_1").await.len(), 1);
}

pub(super) async fn a_refused_batch_changes_nothing(log: Log) {
    let mut first = open(&log, "run_1", "s", 30).await;
    assert!(send(&*log, input("run_1", "wait"), 31).await, "the run is open");
    let inbox = log.inbox(&"run_1".into()).await.expect("it is read");
    let (records_before, before) = (records(&log, "run_1").await, known(&log, "run_1").await);
    let newer = log.claim_new(&"run_2".into());
    let stale = Claim::new(newer.epoch() + 7, ());
    let mut second = RunWriter::resume(Arc::clone(&log), before.clone(), stale);
    second.take(inbox[0].id);
    let refused = write(&mut second, 32, [asked("apr_1", "c1"), finished()]).await;
    assert!(matches!(refused, Err(LogError::Conflict { .. })), "{refused:?}");
    assert_eq!(records(&log, "run_1").await, records_before);
    assert_eq!(known(&log, "run_1").await, before);
    assert_eq!(log.inbox(&"run_1".into()).await.expect("it is read"), inbox, "nothing was taken");
    assert!(log.open_approvals().await.expect("they are read").is_empty(), "nothing was asked");
    let busy = begin(&log, "run_3", 33, started("s")).await.err();
    assert!(
        matches!(busy, Some(LogError::SessionBusy { .. })),
        "the session is not free: {busy:?}"
    );
    let none = log.summary(&"run_3".into()).await.expect("it is read");
    assert!(none.is_none(), "a run that was refused is none");
    write(&mut first, 34, [finished()]).await.expect("the writer goes on");
    drop(begin(&log, "run_3", 35, following("s", "run_1")).await.expect("its id is free"));
}

/// All appends are concurrent, under claims that look alike.
pub(super) async fn takes_one_of_many_appends(log: Log) {
    let writer = open(&log, "run_1", "s", 30).await;
    drop(writer);
    let claim = log.claim(&"run_1".into()).await.expect("the run is free");
    let summary = known(&log, "run_1").await;
    let appends = (0..8).map(|number: u8| {
        let (log, summary, epoch) = (Arc::clone(&log), summary.clone(), claim.epoch());
        tokio::spawn(async move {
            let mut writer = RunWriter::resume(log, summary, Claim::new(epoch, ()));
            write(&mut writer, 31, [warning(&number.to_string()), warning("more")]).await
        })
    });
    let mut taken = 0;
    for result in join_all(appends).await {
        match result.expect("an append does not panic") {
            Ok(()) => taken += 1,
            Err(LogError::Conflict { seq: 2, .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((taken, records(&log, "run_1").await.len()), (1, 3), "one of them counts");
    drop(claim);
    let mut next = resume(&log, "run_1").await;
    write(&mut next, 32, [finished()]).await.expect("the run goes on");
}

pub(super) async fn keeps_the_appends_of_many_runs(log: Log) {
    let runs = (0..8).map(|number| {
        let (log, run) = (Arc::clone(&log), format!("run_{number}"));
        tokio::spawn(async move {
            let mut writer = begin(&log, &run, 30, started(&run)).await?;
            for ms in 31..35 {
                write(&mut writer, ms, [warning(&run), warning(&run)]).await?;
            }
            Ok::<_, LogError>(writer)
        })
    });
    for run in join_all(runs).await {
        let writer = run.expect("a run does not panic").expect("it is in no other's way");
        let run = writer.summary().run.as_str();
        let (summary, events) = read_events(&*log, &run.into()).await.expect("it is read back");
        assert_eq!((&summary, events.len()), (writer.summary(), 9), "of {run}");
    }
}

pub(super) async fn has_no_claim_for_a_run_it_has_not(log: Log) {
    let missing = log.claim(&"run_1".into()).await;
    assert!(
        matches!(&missing, Err(LogError::NotFound(run)) if run.as_str() == "run_1"),
        "{missing:?}"
    );
}

pub(super) async fn a_run_that_begins_is_claimed(log: Log) {
    let run = RunId::from("run_1");
    let writer = open(&log, "run_1", "s", 47).await;
    let refused = log.claim(&run).await;
    assert!(matches!(&refused, Err(LogError::Claimed(claimed)) if *claimed == run), "{refused:?}");
    drop(open(&log, "run_2", "s-2", 47).await);
    assert!(log.claim(&"run_2".into()).await.is_ok(), "another run is free");
    drop(writer);
    drop(log.claim(&run).await.expect("a claim ends with its writer"));
}

pub(super) async fn a_claim_ends_when_it_is_dropped(log: Log) {
    whole(&log, "run_1", "s", 47).await;
    for _ in 0..3 {
        let claim = log.claim(&"run_1".into()).await.expect("the run is free");
        let refused = log.claim(&"run_1".into()).await;
        assert!(matches!(&refused, Err(LogError::Claimed(_))), "it is claimed: {refused:?}");
        drop(claim);
    }
}

pub(super) async fn gives_a_run_to_one_of_many_claims(log: Log) {
    drop(open(&log, "run_1", "s", 47).await);
    let claims = (0..8).map(|_| {
        let log = Arc::clone(&log);
        tokio::spawn(async move { log.claim(&"run_1".into()).await })
    });
    let claims: Vec<_> = join_all(claims).await.into_iter().flatten().collect();
    let given = claims.iter().filter(|claim| claim.is_ok()).count();
    assert_eq!((claims.len(), given), (8, 1), "{claims:?}");
}

pub(super) async fn raises_the_epoch_with_each_claim(log: Log) {
    drop(open(&log, "run_1", "s", 48).await);
    let mut last = Claim::FIRST;
    for _ in 0..3 {
        let claim = log.claim(&"run_1".into()).await.expect("the run is free");
        assert!(claim.epoch() > last, "epoch {} after {last}", claim.epoch());
        last = claim.epoch();
    }
}

pub(super) async fn refuses_a_writer_that_was_overtaken(log: Log) {
    drop(open(&log, "run_1", "s", 48).await);
    let summary = known(&log, "run_1").await;
    let newer = log.claim(&"run_1".into()).await.expect("the run is free");
    let older = Claim::new(newer.epoch() - 1, ());
    let mut overtaken = RunWriter::resume(Arc::clone(&log), summary.clone(), older);
    let refused = write(&mut overtaken, 49, [warning("late")]).await;
    assert!(matches!(refused, Err(LogError::Conflict { seq: 2, .. })), "{refused:?}");
    let mut owner = RunWriter::resume(Arc::clone(&log), summary.clone(), newer);
    write(&mut owner, 49, [warning("mine")]).await.expect("the newest claim writes");
    let at_the_seq = owner.summary().clone();
    let mut overtaken = RunWriter::resume(Arc::clone(&log), at_the_seq, Claim::new(1, ()));
    let refused = write(&mut overtaken, 50, [warning("late")]).await;
    assert!(refused.is_err(), "the seq it would write is free, its claim is old");
    write(&mut owner, 50, [finished()]).await.expect("the newest claim goes on");
    assert_eq!(records(&log, "run_1").await.len(), 3);
}
