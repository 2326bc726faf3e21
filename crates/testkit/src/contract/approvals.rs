//! The contract of an event log about approvals.

mod limits;

use std::sync::Arc;

use backstop_event_log::{Decision, InboxRequest, OpenApproval, RunWriter, read_events};
use futures_util::future::join_all;
use layer0::code;
use layer0::event::{
    ApprovalGranted, ApprovalRequested, EventKind, RunFailed, RunWaiting, ToolResponded, WaitFor,
};
use layer0::id::ApprovalId;
use layer0::usage::Usage;
use serde_json::json;

use super::log::history::{Log, at, cancelled, finished, forked, open, records, warning, write};
use super::suite::{Suite, checks};

/// Checks event logs against the contract of [`EventLog`](backstop_event_log::EventLog) about approvals: a request is
/// open until it is decided or expires or its run continues without it, and one decision counts, by a person who may
/// decide. `make` makes an empty log for each trial.
///
/// Specification: A1, A2, A4, D7.
pub fn approvals(make: impl AsyncFn() -> Log + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            a_copied_run_asks_anew,
            a_decision_waits_in_the_inbox_of_its_run,
            an_agreed_call_is_open_no_more,
            a_denied_call_is_open_no_more,
            an_open_approval_says_what_was_asked,
            asks_the_oldest_first,
            counts_one_of_many_decisions,
            counts_the_first_decision,
            drops_a_decision_nothing_waits_for,
            has_no_approval_of_a_run_that_is_over,
            limits::an_open_approval_says_its_limits,
            limits::expires_what_is_not_decided,
            limits::keeps_changed_arguments,
            limits::refuses_a_decision_too_late,
            limits::refuses_one_who_may_not_decide,
            limits::remembers_what_has_expired,
            refuses_a_decision_after_the_end,
            refuses_an_unknown_approval,
        ],
    )
}

/// The request of a run for the approval of a call.
pub(super) fn asked(id: &str, call: &str) -> EventKind {
    ApprovalRequested::new(id, call, "wipe", json!({"path": format!("/data/{call}")}), "0").into()
}

fn granted(id: &str, call: &str) -> EventKind {
    ApprovalGranted::new(id, call, "ops").into()
}

fn denied(call: &str) -> EventKind {
    let reason = code::TOOL_APPROVAL_DENIED;
    ToolResponded::refusal(call.into(), "wipe".into(), reason, "Denied: no").into()
}

/// A run that waits for the decision of these calls.
async fn waiting(log: &Log, run: &str, ms: i64, asks: &[(&str, &str)]) -> RunWriter {
    let mut writer = open(log, run, run, ms).await;
    let ids = asks.iter().map(|(id, _)| ApprovalId::from(*id)).collect();
    let asks = asks.iter().map(|(id, call)| asked(id, call));
    let wait = RunWaiting::new(WaitFor::Approval, ids);
    let all: Vec<_> = asks.chain([wait.into()]).collect();
    write(&mut writer, ms + 1, all).await.expect("it is appended");
    writer
}

async fn pending(log: &Log) -> Vec<OpenApproval> {
    log.open_approvals().await.expect("approvals are read")
}

async fn ids(log: &Log) -> Vec<String> {
    pending(log).await.iter().map(|open| open.id.to_string()).collect()
}

async fn decide(log: &Log, id: &str, decision: Decision) -> bool {
    log.decide(&id.into(), decision, at(59)).await.expect("a decision is sent")
}

async fn inbox(log: &Log, run: &str) -> Vec<InboxRequest> {
    let inbox = log.inbox(&run.into()).await.expect("it is read");
    inbox.into_iter().map(|message| message.request).collect()
}

fn ops() -> Decision {
    Decision::approve("ops")
}

async fn an_open_approval_says_what_was_asked(log: Log) {
    let _writer = waiting(&log, "run_1", 50, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    let all = pending(&log).await;
    assert_eq!(all.len(), 2);
    let second = &all[1];
    assert_eq!((second.id.as_str(), second.run.as_str()), ("apr_2", "run_1"));
    assert_eq!((&*second.tool, second.arguments.get()), ("wipe", r#"{"path":"/data/c2"}"#));
    assert_eq!((second.requested_at, second.call_id.as_str(), second.seq), (at(51), "c2", 3));
}

async fn asks_the_oldest_first(log: Log) {
    let _one = waiting(&log, "run_1", 70, &[("apr_b", "c1"), ("apr_d", "c2")]).await;
    let _two = waiting(&log, "run_2", 50, &[("apr_c", "c1"), ("apr_e", "c2")]).await;
    let _three = waiting(&log, "run_3", 60, &[("apr_a", "c1")]).await;
    assert_eq!(ids(&log).await, ["apr_c", "apr_e", "apr_a", "apr_b", "apr_d"]);
}

async fn counts_the_first_decision(log: Log) {
    let _writer = waiting(&log, "run_1", 50, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    assert!(decide(&log, "apr_1", Decision::deny("ops", "no")).await, "the first decision counts");
    assert!(!decide(&log, "apr_1", Decision::approve("lead")).await, "the second does not");
    assert!(!decide(&log, "apr_1", Decision::deny("ops", "no")).await, "nor the same again");
    assert_eq!(inbox(&log, "run_1").await.len(), 1);
    assert_eq!(ids(&log).await, ["apr_2"], "what is decided is open no more");
}

async fn counts_one_of_many_decisions(log: Log) {
    let _writer = waiting(&log, "run_1", 50, &[("apr_1", "c1")]).await;
    let decisions = (0..8).map(|number| {
        let log = Arc::clone(&log);
        tokio::spawn(
            async move { decide(&log, "apr_1", Decision::approve(number.to_string())).await },
        )
    });
    let counted = join_all(decisions).await.into_iter().filter(|counts| matches!(counts, Ok(true)));
    assert_eq!((counted.count(), inbox(&log, "run_1").await.len()), (1, 1));
}

async fn refuses_an_unknown_approval(log: Log) {
    assert!(!decide(&log, "apr_0", ops()).await, "nothing was asked");
    let _writer = waiting(&log, "run_1", 50, &[("apr_1", "c1")]).await;
    for unknown in ["apr_0", "apr_", "apr_1'", "c1", "%", ""] {
        assert!(!decide(&log, unknown, ops()).await, "`{unknown}` was not asked");
    }
    assert_eq!(ids(&log).await, ["apr_1"]);
    assert!(inbox(&log, "run_1").await.is_empty());
}

async fn a_decision_waits_in_the_inbox_of_its_run(log: Log) {
    let mut one = waiting(&log, "run_1", 50, &[("apr_1", "c1")]).await;
    let _two = waiting(&log, "run_2", 50, &[("apr_2", "c1")]).await;
    let mut watch = log.watch_inbox(&"run_1".into());
    watch.wait_for_change().await;
    let decision = Decision::approve("ops").because("it is a test");
    assert!(decide(&log, "apr_1", decision.clone()).await);
    watch.wait_for_change().await;
    let expected = InboxRequest::Decide { approval: "apr_1".into(), decision };
    assert_eq!(inbox(&log, "run_1").await, [expected], "as it was decided");
    assert!(inbox(&log, "run_2").await.is_empty(), "the same call id in another run is another");
    let message = log.inbox(&"run_1".into()).await.expect("it is read").remove(0);
    assert_eq!((&*message.by, message.at), ("ops", at(59)));
    one.take(message.id);
    write(&mut one, 60, [granted("apr_1", "c1")]).await.expect("it is recorded");
    assert!(inbox(&log, "run_1").await.is_empty());
    assert_eq!(ids(&log).await, ["apr_2"]);
    assert!(!decide(&log, "apr_1", ops()).await, "a recorded decision stays");
}

async fn an_agreed_call_is_open_no_more(log: Log) {
    let mut writer = waiting(&log, "run_1", 50, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    write(&mut writer, 52, [granted("apr_1", "c1")]).await.expect("it is appended");
    assert_eq!(ids(&log).await, ["apr_2"]);
    assert!(!decide(&log, "apr_1", ops()).await);
}

async fn a_denied_call_is_open_no_more(log: Log) {
    let mut writer = waiting(&log, "run_1", 50, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    let other = ToolResponded::success("c1", "read", json!({"result": "c1"}), 1);
    write(&mut writer, 52, [warning("c2"), denied("c2")]).await.expect("it is appended");
    assert_eq!(ids(&log).await, ["apr_1"]);
    assert!(!decide(&log, "apr_2", ops()).await);
    write(&mut writer, 53, [granted("apr_1", "c1"), other.into()]).await.expect("it is appended");
    assert!(ids(&log).await.is_empty());
}

/// A person decides after something else has closed the call.
async fn drops_a_decision_nothing_waits_for(log: Log) {
    let mut writer = waiting(&log, "run_1", 50, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    assert!(decide(&log, "apr_1", ops()).await && decide(&log, "apr_2", ops()).await);
    write(&mut writer, 60, [denied("c1")]).await.expect("it is appended");
    let left = InboxRequest::Decide { approval: "apr_2".into(), decision: ops() };
    assert_eq!(inbox(&log, "run_1").await, [left]);
}

fn failed() -> EventKind {
    RunFailed::new(code::PROVIDER_TIMEOUT, vec!["too late".into()], Usage::default()).into()
}

async fn has_no_approval_of_a_run_that_is_over(log: Log) {
    let _other = waiting(&log, "run_0", 49, &[("apr_0", "c0")]).await;
    for (number, end) in [finished(), cancelled(), failed()].into_iter().enumerate() {
        let (run, id) = (format!("run_e{number}"), format!("apr_e{number}"));
        let mut writer = waiting(&log, &run, 50, &[(&id, "c0")]).await;
        assert_eq!(ids(&log).await, ["apr_0", &id]);
        write(&mut writer, 60, [end]).await.expect("it ends");
        assert_eq!(ids(&log).await, ["apr_0"], "it is over");
    }
}

async fn refuses_a_decision_after_the_end(log: Log) {
    for (number, end) in [finished(), cancelled(), failed()].into_iter().enumerate() {
        let (run, id) = (format!("run_{number}"), format!("apr_{number}"));
        let mut writer = waiting(&log, &run, 50, &[(&id, "c1")]).await;
        write(&mut writer, 60, [end]).await.expect("it ends");
        assert!(!decide(&log, &id, ops()).await, "nothing waits for it any more");
        assert!(inbox(&log, &run).await.is_empty());
    }
}

/// Requests of a run belong to it, not to its forks.
async fn a_copied_run_asks_anew(log: Log) {
    let _writer = waiting(&log, "run_1", 50, &[("apr_1", "c1")]).await;
    let (_, events) = read_events(&*log, &"run_1".into()).await.expect("it is read");
    let copied = records(&log, "run_1").await;
    let seq = u64::try_from(events.len()).expect("a few events");
    let mut copy = RunWriter::copy(Arc::clone(&log), "run_2".into(), &events, copied);
    write(&mut copy, 60, [forked("run_2", "run_1", seq)]).await.expect("it is copied");
    let runs = async || {
        let all = pending(&log).await;
        all.iter().map(|open| (open.id.to_string(), open.run.to_string())).collect::<Vec<_>>()
    };
    let of_parent = ("apr_1".to_owned(), "run_1".to_owned());
    let copied = runs().await;
    assert_eq!(copied, std::slice::from_ref(&of_parent), "a copy asks for nothing by being one");
    write(&mut copy, 61, [asked("apr_2", "c1")]).await.expect("it is appended");
    let of_copy = ("apr_2".to_owned(), "run_2".to_owned());
    assert_eq!(runs().await, [of_parent, of_copy.clone()]);
    assert!(decide(&log, "apr_1", ops()).await, "the parent's is decided");
    assert_eq!((inbox(&log, "run_1").await.len(), inbox(&log, "run_2").await.len()), (1, 0));
    assert_eq!(runs().await, [of_copy]);
}
