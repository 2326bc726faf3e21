//! Checks that appended events are kept.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use backstop_event_log::{RunFilter, RunState, RunWriter, read_events, verify};
use layer0::event::{Actor, AgentRecord, EventKind, RunFailed, RunResumed};
use layer0::id::RunId;
use layer0::usage::Usage;
use layer0::{JsonText, Timestamp, code};
use serde_json::json;

use super::history::{
    Log, begin, dispatched, finished, following, open, records, seed, started, warning, whole,
    write,
};

pub(super) async fn keeps_what_is_appended(log: Log) {
    let mut writer = open(&log, "run_1", "s", 10).await;
    let more = [warning("one"), warning(&"two ".repeat(5_000)), finished()];
    write(&mut writer, 20, more).await.expect("a batch is taken");
    let (summary, events) = read_events(&*log, &"run_1".into()).await.expect("it is read back");
    assert_eq!(summary.last_seq, 4, "the summary is as new as the last event");
    assert_eq!((summary.state, &*summary.agent), (RunState::Finished, "conformance"));
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(events[0].kind, EventKind::from(started("s")), "text comes out as it went in");
    assert!(verify(&records(&log, "run_1").await, &summary, log.key()).is_ok(), "the chain holds");
}

pub(super) async fn keeps_every_field_of_a_record(log: Log) {
    let texts = ["", "quote ' \" \\", "zero \u{0} escape \u{1b}", "ä\u{1f600}\r\n\t", "${x} %s ?1"];
    let actors = [Actor::Machine, Actor::Model, Actor::Tool, Actor::Hook, Actor::Memory];
    let mut writer = RunWriter::new(Arc::clone(&log), "run_1".into());
    let mut staged = vec![(Timestamp::from_millis(-1), Actor::Runtime, None, started("s").into())];
    for (number, (text, actor)) in (0..).zip(texts.into_iter().zip(actors)) {
        let at = Timestamp::from_millis(1_767_225_600_123 + number);
        staged.push((at, actor, Some(1), warning(text)));
    }
    let far = Timestamp::from_millis(253_402_300_799_999);
    staged.push((far, Actor::Person, Some(u64::from(u32::MAX)), warning("far")));
    for (at, actor, caused_by, kind) in staged {
        writer.stage(&seed(), at, actor, caused_by, kind);
    }
    let written: Vec<_> = writer.commit().await.expect("a batch is taken").collect();
    let (_, read) = read_events(&*log, &"run_1".into()).await.expect("it is read back");
    assert_eq!(read, written);
}

pub(super) async fn keeps_every_field_of_a_summary(log: Log) {
    whole(&log, "run_1", "s", 20).await;
    let mut next = following("s", "run_1");
    let terms = json!({"budget": {"max_model_calls": 3}, "price": {"input": 1.5}});
    next.agent.definition = (&terms).into();
    next.labels =
        Arc::new([("tenant".into(), "ä'\"".into()), ("env".into(), String::new())].into());
    let mut child = next.clone();
    (child.follows, child.parent) = (None, Some("run_2".into()));
    for (run, begun) in [("run_2", next), ("run_3", child)] {
        let mut writer = RunWriter::new(Arc::clone(&log), run.into());
        let mut usage = Usage::default();
        (usage.model_calls, usage.tool_calls, usage.total_tokens) = (2, 1, 9);
        let failed = RunFailed::new(code::PROVIDER_TIMEOUT, vec!["too late".into()], usage);
        for (at, kind) in [(22, begun.into()), (23, warning("x")), (24, failed.into())] {
            write(&mut writer, at, [kind]).await.expect("it is appended");
            let kept = log.summary(&run.into()).await.expect("a summary is read");
            assert_eq!(kept.as_ref(), Some(writer.summary()), "a summary is kept whole");
        }
        let kept = log.kept_summary(&run.into()).await.expect("a summary is read");
        assert_eq!(kept.as_ref(), Some(writer.summary()), "as it is kept");
        let of_session = RunFilter::new().session("s");
        let listed = log.runs(of_session).await.expect("runs are listed");
        let listed = listed.iter().find(|summary| summary.run.as_str() == run);
        assert_eq!(listed, Some(writer.summary()), "and listed whole");
    }
    // A run that adopts another definition of its agent has other terms from there on.
    let mut writer = open(&log, "run_4", "s-4", 30).await;
    let terms = json!({"budget": {"max_model_calls": 9}, "price": null});
    let agent = AgentRecord::new("conformance", "d2", JsonText::from(&terms));
    let resumed = RunResumed::new("ops").adopting(agent);
    write(&mut writer, 31, [resumed.into(), warning("x")]).await.expect("it is appended");
    write(&mut writer, 32, [warning("y")]).await.expect("it is appended");
    let kept = log.summary(&"run_4".into()).await.expect("a summary is read");
    assert_eq!(kept.as_ref(), Some(writer.summary()), "with what it adopted");
    let of_session = log.runs(RunFilter::new().session("s-4")).await.expect("runs are listed");
    assert_eq!(of_session, kept.into_iter().collect::<Vec<_>>(), "and listed with it");
    let root = log.last_root(&"s".into()).await.expect("it is read");
    let kept = log.summary(&"run_2".into()).await.expect("a summary is read");
    assert_eq!(root, kept, "the last root is whole, too");
}

pub(super) async fn keeps_runs_apart(log: Log) {
    let mut one = open(&log, "run_1", "s-1", 10).await;
    let mut two =
        begin(&log, "run_1'; --", 10, dispatched("s-1", "run_1")).await.expect("it begins");
    write(&mut one, 11, [warning("of one")]).await.expect("it is appended");
    write(&mut two, 11, [warning("of two"), finished()]).await.expect("it is appended");
    for (run, count) in [("run_1", 2), ("run_1'; --", 3)] {
        let (summary, events) = read_events(&*log, &run.into()).await.expect("it is read back");
        assert_eq!((summary.run.as_str(), events.len()), (run, count));
    }
    let first = log.summary(&"run_1".into()).await.expect("it is read").expect("it is known");
    assert!(first.is_open(), "the end of another run is not its own");
}

pub(super) async fn reads_records_from_a_seq_on(log: Log) {
    let mut writer = open(&log, "run_1", "s", 10).await;
    write(&mut writer, 11, ["a", "b", "c"].map(warning)).await.expect("it is appended");
    let all = records(&log, "run_1").await;
    for from in 0..=6 {
        let read = log.records(&"run_1".into(), from).await.expect("records are read");
        let before =
            usize::try_from(from.saturating_sub(1)).expect("a small number").min(all.len());
        assert_eq!(read, all[before..], "from seq {from} on");
    }
}

pub(super) async fn has_nothing_of_a_run_it_was_not_given(log: Log) {
    whole(&log, "run_1", "s", 10).await;
    let none = RunId::from("run_none");
    assert!(log.summary(&none).await.expect("no run is no error").is_none());
    assert!(log.kept_summary(&none).await.expect("no run is no error").is_none());
    assert!(log.records(&none, 1).await.expect("no run is no error").is_empty());
    assert!(log.inbox(&none).await.expect("no run is no error").is_empty());
    assert!(log.last_root(&"s-none".into()).await.expect("no run is no error").is_none());
}

/// The future is dropped after each possible number of polls.
pub(super) async fn writes_a_dropped_append_whole_or_not_at_all(log: Log) {
    for polls in 0..6 {
        let (run, session) = (format!("run_{polls}"), format!("s-{polls}"));
        let mut writer = open(&log, &run, &session, 10).await;
        let appended = {
            let batch = [warning("a"), warning("b"), warning("c")];
            let mut append = pin!(write(&mut writer, 11, batch));
            let mut cx = Context::from_waker(Waker::noop());
            let mut appended = false;
            for _ in 0..polls {
                if append.as_mut().poll(&mut cx).is_ready() {
                    appended = true;
                    break;
                }
                tokio::task::yield_now().await;
            }
            appended
        };
        drop(writer);
        // A pending write may still arrive: the run is free when it has settled.
        let claim = loop {
            match log.claim(&run.as_str().into()).await {
                Ok(claim) => break claim,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
            tokio::task::yield_now().await;
        };
        let (summary, events) = read_events(&*log, &run.as_str().into()).await.expect("it is read");
        let whole = events.len() == 4;
        assert!(whole || events.len() == 1 && !appended, "{} events of a batch", events.len() - 1);
        assert_eq!(summary.last_seq, if whole { 4 } else { 1 }, "the summary says the same");
        let mut next = RunWriter::resume(Arc::clone(&log), summary, claim);
        write(&mut next, 12, [finished()]).await.expect("the run goes on");
    }
}
