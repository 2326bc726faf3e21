//! Checks of approvers, expiry, arguments and data of approvals.

use backstop_event_log::{Decision, InboxRequest, LogError, RunWriter};
use layer0::code;
use layer0::event::{ApprovalDenied, EventKind};
use serde_json::json;

use super::{Log, asked, denied, ids, inbox, ops, pending};
use crate::contract::log::history::{at, finished, open, send, write};

/// Expiry of the approvals in these trials.
const OVER: i64 = 80;

/// An approval that `ops` or `lead` may decide in time.
fn limited(id: &str, call: &str) -> EventKind {
    let EventKind::ApprovalRequested(mut asked) = asked(id, call) else {
        unreachable!("it is asked")
    };
    asked.expires_at = Some(at(OVER));
    asked.schema = Some(json!({"type": "object"}).into());
    asked.approvers = ["ops", "lead"].into_iter().collect();
    asked.into()
}

/// A run that waits for such approvals, and for `apr_0`, which any person may decide at any time.
async fn waiting(log: &Log, asks: &[(&str, &str)]) -> RunWriter {
    let mut writer = open(log, "run_1", "s", 50).await;
    let asks = asks.iter().map(|(id, call)| limited(id, call)).chain([asked("apr_0", "c0")]);
    write(&mut writer, 51, asks).await.expect("it is appended");
    writer
}

async fn decide(log: &Log, id: &str, decision: Decision, ms: i64) -> Result<bool, LogError> {
    log.decide(&id.into(), decision, at(ms)).await
}

async fn expire(log: &Log, id: &str, ms: i64) -> bool {
    send(&**log, InboxRequest::Expire { approval: id.into() }, ms).await
}

fn is_expired(decided: &Result<bool, LogError>, id: &str) -> bool {
    matches!(decided, Err(LogError::ApprovalExpired(expired)) if expired.as_str() == id)
}

/// The record that an approval was denied with this code.
fn closed(id: &str, call: &str, reason: &'static str) -> [EventKind; 2] {
    let mut denial = ApprovalDenied::new(id, call, "ops", reason);
    // The message of a person may contain the code.
    denial.message = Some(code::APPROVAL_EXPIRED.into());
    [denial.into(), denied(call)]
}

pub(super) async fn an_open_approval_says_its_limits(log: Log) {
    let mut writer = waiting(&log, &[("apr_1", "c1")]).await;
    let all = pending(&log).await;
    let of = |id| all.iter().find(|open| open.id.as_str() == id).expect("it is open");
    let limited = of("apr_1");
    assert_eq!(limited.expires_at, Some(at(OVER)));
    assert_eq!(limited.approvers.to_string(), "ops, lead");
    assert_eq!(limited.schema, Some(json!({"type": "object"}).into()));
    assert_eq!((of("apr_0").expires_at, of("apr_0").approvers.is_empty()), (None, true));
    assert_eq!(of("apr_0").schema, None);
    // The request of a running call is closed before the call has its answer.
    let [denial, _] = closed("apr_1", "c1", code::APPROVAL_DENIED);
    write(&mut writer, 60, [denial]).await.expect("it is appended");
    assert_eq!(ids(&log).await, ["apr_0"]);
}

pub(super) async fn refuses_one_who_may_not_decide(log: Log) {
    let _writer = waiting(&log, &[("apr_1", "c1")]).await;
    for by in ["intern", "Ops", "ops ", "ops, lead", ""] {
        let refused = decide(&log, "apr_1", Decision::approve(by), 60).await;
        match refused {
            Err(LogError::NotApprover { approval, by: who, approvers, .. }) => {
                assert_eq!((approval.as_str(), &*who), ("apr_1", by));
                assert_eq!(approvers.to_string(), "ops, lead");
            }
            other => panic!("`{by}` may not decide: {other:?}"),
        }
    }
    // Both were requested at the same time.
    let mut open = ids(&log).await;
    open.sort();
    assert_eq!(open, ["apr_0", "apr_1"], "what is refused changes nothing");
    assert!(inbox(&log, "run_1").await.is_empty());
    let lead = Decision::deny("lead", "no");
    assert!(decide(&log, "apr_1", lead, 60).await.expect("one of them may"));
    assert!(decide(&log, "apr_0", Decision::approve("intern"), 60).await.expect("any person may"));
}

pub(super) async fn refuses_a_decision_too_late(log: Log) {
    let _writer = waiting(&log, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    for ms in [OVER, OVER + 1, OVER + 1_000_000] {
        let decided = decide(&log, "apr_1", ops(), ms).await;
        assert!(is_expired(&decided, "apr_1"), "{decided:?}");
    }
    assert!(inbox(&log, "run_1").await.is_empty(), "what is refused changes nothing");
    assert!(decide(&log, "apr_2", ops(), OVER - 1).await.expect("it is in time"));
    assert!(decide(&log, "apr_0", ops(), OVER + 1).await.expect("it does not expire"));
}

/// Decision and expiry race; the first one counts.
pub(super) async fn expires_what_is_not_decided(log: Log) {
    let _writer = waiting(&log, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    assert!(!expire(&log, "apr_1", OVER - 1).await, "there is time yet");
    assert!(!expire(&log, "apr_0", OVER + 1).await, "it does not expire");
    assert!(!expire(&log, "apr_x", OVER + 1).await, "it was not asked");
    assert!(expire(&log, "apr_1", OVER).await, "its time is over");
    assert!(!expire(&log, "apr_1", OVER + 1).await, "it expires once");
    let decided = decide(&log, "apr_1", ops(), OVER - 1).await;
    assert!(is_expired(&decided, "apr_1"), "whatever the clock of the sender says: {decided:?}");
    assert!(decide(&log, "apr_2", ops(), OVER - 1).await.expect("it is in time"));
    assert!(!expire(&log, "apr_2", OVER + 1).await, "what was accepted counts");
    let expected = [
        InboxRequest::Expire { approval: "apr_1".into() },
        InboxRequest::Decide { approval: "apr_2".into(), decision: ops() },
    ];
    assert_eq!(inbox(&log, "run_1").await, expected);
    assert_eq!(ids(&log).await, ["apr_0"], "neither is open");
}

pub(super) async fn remembers_what_has_expired(log: Log) {
    let mut writer = waiting(&log, &[("apr_1", "c1"), ("apr_2", "c2")]).await;
    assert!(expire(&log, "apr_1", OVER).await);
    let row = log.inbox(&"run_1".into()).await.expect("it is read").remove(0);
    writer.take(row.id);
    let expired = closed("apr_1", "c1", code::APPROVAL_EXPIRED);
    write(&mut writer, 81, expired).await.expect("it is appended");
    let denied = closed("apr_2", "c2", code::APPROVAL_DENIED);
    write(&mut writer, 82, denied).await.expect("it is appended");
    assert_eq!(ids(&log).await, ["apr_0"]);
    assert!(inbox(&log, "run_1").await.is_empty());
    for ended in [false, true] {
        if ended {
            write(&mut writer, 90, [finished()]).await.expect("it ends");
        }
        let decided = decide(&log, "apr_1", ops(), 70).await;
        assert!(is_expired(&decided, "apr_1"), "{decided:?}");
        let decided = decide(&log, "apr_2", ops(), 70).await;
        assert!(matches!(decided, Ok(false)), "it was denied: {decided:?}");
        assert!(!expire(&log, "apr_1", 99).await && !expire(&log, "apr_2", 99).await);
    }
}

pub(super) async fn keeps_changed_arguments(log: Log) {
    let _writer = waiting(&log, &[("apr_1", "c1")]).await;
    let changed = ops().with_arguments(json!({"path": "/data/\u{0}", "size": 3.5}));
    let changed = changed.with_data(json!({"day": "\u{0}", "amount": 3.5}));
    assert!(decide(&log, "apr_1", changed.clone(), 60).await.expect("it is sent"));
    let expected = InboxRequest::Decide { approval: "apr_1".into(), decision: changed };
    assert_eq!(inbox(&log, "run_1").await, [expected]);
}
