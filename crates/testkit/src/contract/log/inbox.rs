//! Checks that messages to a run wait for its writer.

use std::sync::Arc;
use std::task::{Context, Waker};

use backstop_event_log::{Decision, InboxRequest, Settlement};
use futures_util::future::join_all;
use layer0::JsonText;
use layer0::event::{ToolResolved, Verdict};
use serde_json::json;

use super::history::{
    Log, at, cancel, cancelled, finished, input, open, send, settle, warning, write,
};
use crate::contract::approvals::asked;
use crate::contract::suite::woken;

async fn inbox(log: &Log, run: &str) -> Vec<backstop_event_log::InboxMessage> {
    log.inbox(&run.into()).await.expect("it is read")
}

pub(super) async fn accepts_requests_while_the_run_is_open(log: Log) {
    for request in [cancel("run_1"), input("run_1", "early")] {
        assert!(!send(&*log, request, 59).await, "there is no such run");
    }
    let mut writer = open(&log, "run_1", "s", 60).await;
    for request in [cancel("run_1"), input("run_1", "go on"), cancel("run_1")] {
        assert!(send(&*log, request, 61).await, "the run is open");
    }
    write(&mut writer, 62, [finished()]).await.expect("it is appended");
    for request in [cancel("run_1"), input("run_1", "late")] {
        assert!(!send(&*log, request, 63).await, "the run is over");
    }
    let kept = inbox(&log, "run_1").await;
    let kept: Vec<_> = kept.into_iter().map(|message| message.request).collect();
    assert_eq!(kept, [input("run_1", "go on")], "what is refused changes nothing");
}

fn signal(name: &str, data: JsonText) -> InboxRequest {
    InboxRequest::Signal { run: "run_1".into(), name: name.into(), data, cause: None }
}

pub(super) async fn keeps_every_field_of_a_request(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let asks = [asked("apr_1", "c1"), asked("apr_2", "c2")];
    write(&mut writer, 61, asks).await.expect("it is appended");
    let deny = Decision::deny("ops 'x'", "no \"quotes\" \u{0} ä");
    let approve = Decision::approve("lead").because("fine");
    let requests = [
        input("run_1", "zero \u{0} quote ' umlaut ä \u{1f600}\n"),
        InboxRequest::Decide { approval: "apr_2".into(), decision: deny.clone() },
        InboxRequest::Decide { approval: "apr_1".into(), decision: approve.clone() },
        cancel("run_1"),
        settle(
            "run_1",
            "c \"3\"",
            Settlement::call_happened("ops").with_output(JsonText::string("\u{0}ä")),
        ),
        settle("run_1", "c4", Settlement::did_not("ops")),
        signal("look", JsonText::from(json!({ "at": [1] }))),
        signal("cancel", JsonText::default()),
    ];
    let by = ["me", &*deny.by, &*approve.by, "", "ops", "ops", "you", "you"];
    for ((request, by), ms) in requests.iter().zip(by).zip(70..) {
        let sent = log.send(request.clone(), by, at(ms)).await.expect("it is sent");
        assert!(sent, "{request:?} is accepted");
    }
    let kept = inbox(&log, "run_1").await;
    let read: Vec<_> = kept.iter().map(|message| (&message.request, &*message.by)).collect();
    assert_eq!(read, requests.iter().zip(by).collect::<Vec<_>>(), "oldest first");
    let times: Vec<_> = kept.iter().map(|message| message.at).collect();
    assert_eq!(times, [70, 71, 72, 73, 74, 75, 76, 77].map(at));
    let mut ids: Vec<_> = kept.iter().map(|message| message.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8, "each row has a name of its own");
}

pub(super) async fn keeps_the_inboxes_of_runs_apart(log: Log) {
    let _one = open(&log, "run_1", "s-1", 60).await;
    let mut two = open(&log, "run_2", "s-2", 60).await;
    assert!(send(&*log, input("run_1", "one"), 61).await);
    assert!(send(&*log, input("run_2", "two"), 62).await);
    let (of_one, of_two) = (inbox(&log, "run_1").await, inbox(&log, "run_2").await);
    assert_eq!((of_one.len(), of_two.len()), (1, 1));
    assert_eq!(
        (&of_one[0].request, &of_two[0].request),
        (&input("run_1", "one"), &input("run_2", "two"))
    );
    two.take(of_one[0].id);
    two.take(of_two[0].id);
    write(&mut two, 63, [warning("heard")]).await.expect("it is appended");
    assert_eq!(inbox(&log, "run_1").await, of_one, "a run takes what is its own");
    assert!(inbox(&log, "run_2").await.is_empty());
    write(&mut two, 64, [finished()]).await.expect("it is appended");
    assert_eq!(inbox(&log, "run_1").await, of_one, "the end of a run is not another's");
}

pub(super) async fn takes_a_request_with_the_append_that_records_it(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let sends = ["a", "b", "c"].map(|text| {
        let log = Arc::clone(&log);
        tokio::spawn(async move { send(&*log, input("run_1", text), 61).await })
    });
    assert!(join_all(sends).await.into_iter().all(|sent| sent.is_ok_and(|sent| sent)));
    let all = inbox(&log, "run_1").await;
    assert_eq!(all.len(), 3, "none is lost");
    writer.take(all[1].id);
    assert_eq!(inbox(&log, "run_1").await.len(), 3, "taken by the append only");
    write(&mut writer, 62, [warning("heard")]).await.expect("it is appended");
    let left = inbox(&log, "run_1").await;
    assert_eq!(left, [all[0].clone(), all[2].clone()], "what an append takes is gone");
    write(&mut writer, 63, [warning("at work")]).await.expect("it is appended");
    assert_eq!(inbox(&log, "run_1").await, left, "an append that takes nothing leaves all");
}

/// No decision lets a call run in a run that is to stop, so that nobody is informed that it runs.
pub(super) async fn refuses_decisions_behind_a_cancellation(log: Log) {
    let mut writer = open(&log, "run_1", "s", 60).await;
    let asks = [asked("apr_1", "c1"), asked("apr_2", "c2")];
    write(&mut writer, 61, asks).await.expect("it is appended");
    let decide = |approval: &str| InboxRequest::Decide {
        approval: approval.into(),
        decision: Decision::approve("ops"),
    };
    assert!(send(&*log, decide("apr_1"), 62).await, "it came before");
    assert!(send(&*log, cancel("run_1"), 63).await);
    assert!(!send(&*log, decide("apr_2"), 64).await, "the run is to stop");
}

/// Accepted requests are kept: the next writer of the run records them.
pub(super) async fn keeps_what_a_run_was_told_too_late(log: Log) {
    for (run, end) in [("run_1", finished()), ("run_2", cancelled())] {
        let mut writer = open(&log, run, run, 60).await;
        assert!(send(&*log, input(run, "too late"), 61).await);
        write(&mut writer, 62, [end]).await.expect("it is appended");
        let kept = inbox(&log, run).await;
        let kept: Vec<_> = kept.into_iter().map(|message| message.request).collect();
        assert_eq!(kept, [input(run, "too late")]);
    }
}

pub(super) async fn drops_requests_at_the_end_of_a_run(log: Log) {
    for (run, end) in [("run_1", finished()), ("run_2", cancelled())] {
        let mut writer = open(&log, run, run, 60).await;
        assert!(send(&*log, cancel(run), 61).await);
        write(&mut writer, 62, [end]).await.expect("it is appended");
        assert!(inbox(&log, run).await.is_empty(), "nothing waits for a run's end");
    }
}

pub(super) async fn wakes_each_watch_of_the_run(log: Log) {
    let mut early = log.watch_inbox(&"run_1".into());
    let _writer = open(&log, "run_1", "s-1", 60).await;
    let _other = open(&log, "run_2", "s-2", 60).await;
    let mut late = log.watch_inbox(&"run_1".into());
    let mut of_other = log.watch_inbox(&"run_2".into());
    for watch in [&mut early, &mut late, &mut of_other] {
        woken("a watch is ready at first", watch.wait_for_change()).await;
    }
    for text in ["a", "b"] {
        assert!(send(&*log, input("run_1", text), 61).await);
        woken("a request wakes an early watch", early.wait_for_change()).await;
        woken("a request wakes a late watch", late.wait_for_change()).await;
    }
    let changed = of_other.poll_changed(&mut Context::from_waker(Waker::noop()));
    assert!(changed.is_pending(), "what is sent to a run wakes no other");
}

pub(super) async fn keeps_what_people_said_of_a_call(log: Log) {
    let happened = || settle("run_1", "c1", Settlement::call_happened("ops"));
    assert!(!send(&*log, happened(), 59).await, "there is no such run");
    let mut writer = open(&log, "run_1", "s", 60).await;
    assert!(send(&*log, happened(), 61).await);
    write(&mut writer, 62, [finished()]).await.expect("it is appended");
    let kept = inbox(&log, "run_1").await;
    let requests: Vec<_> = kept.iter().map(|message| &message.request).collect();
    assert_eq!(requests, [&happened()], "it waits for the next writer, also behind the end");
    assert!(send(&*log, settle("run_1", "c2", Settlement::did_not("ops")), 63).await);
    assert_eq!(inbox(&log, "run_1").await.len(), 2, "a run that is over takes them too");
}

pub(super) async fn settles_a_call_once(log: Log) {
    let said = [Settlement::call_happened("ops"), Settlement::did_not("lead")];
    let say = |call: &str, at: usize| settle("run_1", call, said[at].clone());
    let mut writer = open(&log, "run_1", "s", 60).await;
    let _other = open(&log, "run_2", "s-2", 60).await;
    assert!(send(&*log, say("c1", 0), 61).await);
    assert!(!send(&*log, say("c1", 1), 62).await, "one waits");
    assert!(send(&*log, settle("run_2", "c1", said[1].clone()), 62).await, "of another run");
    let row = inbox(&log, "run_1").await.remove(0);
    writer.take(row.id);
    let resolved = ToolResolved::new("c1", "ops", Verdict::Happened, None, "ops says so");
    write(&mut writer, 63, [resolved.into()]).await.expect("it is appended");
    assert!(!send(&*log, say("c1", 1), 64).await, "one is recorded");
    assert!(send(&*log, say("c2", 1), 64).await, "of another call");
    write(&mut writer, 65, [finished()]).await.expect("it is appended");
    assert!(!send(&*log, say("c1", 1), 66).await, "one is recorded, and the run is over");
}
