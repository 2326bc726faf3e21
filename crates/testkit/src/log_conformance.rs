//! What every event log has to hold, to be run against one's own.

use std::sync::Arc;

use event_log::{
    Claim, Decision, EventLog, InboxRequest, LogError, Payload, RunFilter, RunState, RunWriter,
    Seed, read_events, session_of_fork, verify, verify_run,
};
use layer0::event::{
    Actor, AgentRecord, ApprovalRequested, EventKind, Follows, Hash, RunFailed, RunFinished,
    RunForked, RunStarted, RunWaiting, Warning,
};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, Timestamp, code};
use serde_json::json;

/// Checks an empty log against everything the contract of [`EventLog`] says: numbering, order, one
/// writer, atomic appends, sessions, claims, questions to people.
///
/// Specification: D1, D2, D4, D8, A1.
///
/// # Panics
///
/// When the log breaks the contract; the message says where.
pub async fn event_log_conformance(log: Arc<dyn EventLog>) {
    keeps_what_is_appended(&log).await;
    keeps_every_field_of_a_summary(&log).await;
    refuses_a_second_writer(&log).await;
    has_one_open_run_a_session(&log).await;
    gives_out_one_claim_a_run(&log).await;
    refuses_a_writer_that_was_overtaken(&log).await;
    finds_the_last_root_of_a_session(&log).await;
    accepts_requests_for_open_runs(&log).await;
    keeps_questions_until_they_are_decided(&log).await;
    lists_runs_newest_first(&log).await;
    erases_what_an_event_says(&log).await;
}

fn started(session: &str, parent: Option<&str>) -> EventKind {
    let agent = AgentRecord {
        name: "conformance".into(),
        digest: "0".into(),
        definition: (&json!({"text": "quote ' zero \u{0} umlaut ä"})).into(),
    };
    let parent = parent.map(RunId::from);
    RunStarted { parent, ..RunStarted::new("x", session.into(), agent) }.into()
}

fn behind(run: &str) -> Follows {
    Follows { run: run.into(), seq: 2, digest: Hash::default(), messages: 1 }
}

fn warning(text: &str) -> EventKind {
    Warning { message: text.into() }.into()
}

fn finished() -> EventKind {
    RunFinished {
        outcome: Outcome::Completed,
        reason: None,
        message: None,
        output: "done".into(),
        usage: Usage::default(),
    }
    .into()
}

async fn write(writer: &mut RunWriter, at: i64, kinds: Vec<EventKind>) -> Result<(), LogError> {
    for kind in kinds {
        writer.stage(&Seed::new("test"), Timestamp::from_millis(at), Actor::Runtime, None, kind);
    }
    writer.commit().await.map(drop)
}

async fn begin(log: &Arc<dyn EventLog>, run: &str, session: &str, at: i64) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    let begun = write(&mut writer, at, vec![started(session, None)]).await;
    assert!(begun.is_ok(), "{run} begins: {begun:?}");
    writer
}

async fn keeps_what_is_appended(log: &Arc<dyn EventLog>) {
    let mut writer = begin(log, "run_kept", "s-kept", 10).await;
    let more = vec![warning("one"), warning(&"two ".repeat(5_000)), finished()];
    assert!(write(&mut writer, 20, more).await.is_ok(), "a batch is taken");
    let run = RunId::from("run_kept");
    let (summary, events) = read_events(&**log, &run).await.expect("a run is read back");
    assert_eq!(summary.last_seq, 4, "the summary is as new as the last event");
    assert_eq!((summary.state, &*summary.agent), (RunState::Finished, "conformance"));
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(events[0].kind, started("s-kept", None), "text comes out as it went in");
    let from = log.records(&run, 3).await.expect("records are read");
    assert_eq!(from.first().map(|record| record.seq), Some(3), "from a seq on");
    let all = log.records(&run, 1).await.expect("records are read");
    assert!(verify(&all, &summary, log.key()).is_ok(), "the chain holds");
    assert!(log.summary(&"run_none".into()).await.expect("no run is no error").is_none());
    assert!(log.records(&"run_none".into(), 1).await.expect("no run is no error").is_empty());
}

async fn keeps_every_field_of_a_summary(log: &Arc<dyn EventLog>) {
    let mut first = begin(log, "run_summed_1", "s-summed", 20).await;
    assert!(write(&mut first, 21, vec![finished()]).await.is_ok());
    let EventKind::RunStarted(mut next) = started("s-summed", None) else { unreachable!() };
    next.follows = Some(Box::new(behind("run_summed_1")));
    let terms = json!({"budget": {"max_model_calls": 3}, "price": {"input": 1.5}});
    next.agent.definition = (&terms).into();
    let mut child = next.clone();
    (child.follows, child.parent) = (None, Some("run_summed_2".into()));
    let of_runs = [("run_summed_2", next), ("run_summed_3", child)];
    for (run, begun) in of_runs {
        let mut writer = RunWriter::new(Arc::clone(log), run.into());
        let failed = RunFailed {
            reason: Code::new(code::PROVIDER_TIMEOUT),
            message: "too late".into(),
            chain: vec!["too late".into()],
            usage: Usage { model_calls: 2, tool_calls: 1, total_tokens: 9, ..Usage::default() },
        };
        for (at, kind) in [(22, begun.into()), (23, warning("x")), (24, failed.into())] {
            assert!(write(&mut writer, at, vec![kind]).await.is_ok());
            let kept = log.summary(&run.into()).await.expect("a summary is read");
            assert_eq!(kept.as_ref(), Some(writer.summary()), "a summary is kept whole");
        }
        let of_session = RunFilter { session: Some("s-summed".into()), limit: None };
        let listed = log.runs(of_session).await.expect("runs are listed");
        let listed = listed.iter().find(|summary| summary.run.as_str() == run);
        assert_eq!(listed, Some(writer.summary()), "and listed whole");
    }
}

async fn refuses_a_second_writer(log: &Arc<dyn EventLog>) {
    let mut first = begin(log, "run_two_writers", "s-writers", 30).await;
    let run = RunId::from("run_two_writers");
    let summary = log.summary(&run).await.ok().flatten().expect("the run is known");
    let stale = Claim::new(Claim::FIRST, ());
    let mut second = RunWriter::resume(Arc::clone(log), summary, stale);
    assert!(write(&mut first, 31, vec![warning("mine")]).await.is_ok());
    let refused = write(&mut second, 32, vec![warning("a"), warning("b")]).await;
    assert!(matches!(refused, Err(LogError::Conflict { seq: 2, .. })), "{refused:?}");
    let mut again = RunWriter::new(Arc::clone(log), run.clone());
    let refused = write(&mut again, 33, vec![started("s-writers", None)]).await;
    assert!(matches!(refused, Err(LogError::Conflict { seq: 1, .. })), "{refused:?}");
    let records = log.records(&run, 1).await.expect("records are read");
    assert_eq!(records.len(), 2, "a refused batch leaves nothing");
    assert!(write(&mut first, 34, vec![finished()]).await.is_ok(), "the writer goes on");
}

async fn has_one_open_run_a_session(log: &Arc<dyn EventLog>) {
    let mut open = begin(log, "run_open", "s-busy", 40).await;
    let mut other = RunWriter::new(Arc::clone(log), "run_other".into());
    let refused = write(&mut other, 41, vec![started("s-busy", None)]).await;
    match refused {
        Err(LogError::SessionBusy { run, .. }) => assert_eq!(run.as_str(), "run_open"),
        other => panic!("a session has one open run: {other:?}"),
    }
    let mut child = RunWriter::new(Arc::clone(log), "run_child".into());
    let begun = write(&mut child, 42, vec![started("s-busy", Some("run_open"))]).await;
    assert!(begun.is_ok(), "a run that another one dispatched shares its session: {begun:?}");
    let known = log.summary(&"run_child".into()).await.ok().flatten().expect("it is known");
    assert_eq!(known.parent, Some("run_open".into()), "who dispatched it is kept");
    assert!(write(&mut open, 43, vec![finished()]).await.is_ok());
    let mut unaware = RunWriter::new(Arc::clone(log), "run_unaware".into());
    let refused = write(&mut unaware, 44, vec![started("s-busy", None)]).await;
    match refused {
        Err(LogError::SessionBusy { run, .. }) => assert_eq!(run.as_str(), "run_open"),
        other => panic!("a run follows the last one of its session: {other:?}"),
    }
    let EventKind::RunStarted(mut after) = started("s-busy", None) else { unreachable!() };
    after.follows = Some(Box::new(behind("run_open")));
    let mut next = RunWriter::new(Arc::clone(log), "run_next".into());
    let begun = write(&mut next, 44, vec![after.clone().into()]).await;
    assert!(begun.is_ok(), "one that knows it begins: {begun:?}");
    let mut early = after.clone();
    early.follows = Some(Box::new(behind("run_next")));
    let mut ahead = RunWriter::new(Arc::clone(log), "run_ahead".into());
    let refused = write(&mut ahead, 44, vec![early.into()]).await;
    match refused {
        Err(LogError::SessionBusy { run, .. }) => assert_eq!(run.as_str(), "run_next"),
        other => panic!("nobody goes on with a run that is open: {other:?}"),
    }
    assert!(write(&mut next, 45, vec![finished()]).await.is_ok());
    let mut late = RunWriter::new(Arc::clone(log), "run_late".into());
    let refused = write(&mut late, 46, vec![after.into()]).await;
    assert!(matches!(refused, Err(LogError::SessionBusy { .. })), "it was overtaken: {refused:?}");
}

async fn gives_out_one_claim_a_run(log: &Arc<dyn EventLog>) {
    let run = RunId::from("run_claimed");
    let missing = log.claim(&run).await;
    assert!(matches!(&missing, Err(LogError::NotFound(_))), "no run, no claim: {missing:?}");
    let writer = begin(log, "run_claimed", "s-claimed", 47).await;
    let refused = log.claim(&run).await;
    assert!(matches!(&refused, Err(LogError::Claimed(claimed)) if *claimed == run), "{refused:?}");
    drop(begin(log, "run_free", "s-free", 47).await);
    assert!(log.claim(&"run_free".into()).await.is_ok(), "another run is free");
    drop(writer);
    let claim = log.claim(&run).await.expect("a claim ends when its writer is dropped");
    assert!(claim.epoch() > Claim::FIRST, "each claim has an epoch of its own");
    let refused = log.claim(&run).await;
    assert!(matches!(&refused, Err(LogError::Claimed(_))), "it is claimed again: {refused:?}");
    drop(claim);
    assert!(log.claim(&run).await.is_ok(), "a claim ends when it is dropped");
}

async fn refuses_a_writer_that_was_overtaken(log: &Arc<dyn EventLog>) {
    let run = RunId::from("run_fenced");
    drop(begin(log, "run_fenced", "s-fenced", 48).await);
    let summary = log.summary(&run).await.ok().flatten().expect("the run is known");
    let newer = log.claim(&run).await.expect("the run is free");
    let older = Claim::new(newer.epoch() - 1, ());
    let mut overtaken = RunWriter::resume(Arc::clone(log), summary.clone(), older);
    let refused = write(&mut overtaken, 49, vec![warning("late")]).await;
    assert!(matches!(refused, Err(LogError::Conflict { seq: 2, .. })), "{refused:?}");
    let mut owner = RunWriter::resume(Arc::clone(log), summary, newer);
    assert!(write(&mut owner, 49, vec![finished()]).await.is_ok(), "the newest claim writes");
}

async fn finds_the_last_root_of_a_session(log: &Arc<dyn EventLog>) {
    let session = "s-roots".into();
    let last = async || log.last_root(&session).await.expect("it is read").map(|last| last.run);
    assert_eq!(last().await, None);
    let mut one = begin(log, "run_z", "s-roots", 90).await;
    assert!(write(&mut one, 91, vec![finished()]).await.is_ok());
    let EventKind::RunStarted(mut second) = started("s-roots", None) else { unreachable!() };
    second.follows = Some(Box::new(behind("run_z")));
    let mut two = RunWriter::new(Arc::clone(log), "run_a".into());
    // The clock was set back: the order of a session is that of its runs, not that of their times.
    assert!(write(&mut two, 80, vec![second.into()]).await.is_ok());
    let mut child = RunWriter::new(Arc::clone(log), "run_b".into());
    let begun = write(&mut child, 99, vec![started("s-roots", Some("run_a"))]).await;
    assert!(begun.is_ok(), "{begun:?}");
    assert_eq!(last().await, Some("run_a".into()), "neither by time nor by name");
    let known = log.last_root(&session).await.expect("it is read").expect("it is there");
    assert_eq!((known.messages, known.last_seq), (2, 1), "the transcript goes on");
    assert!(write(&mut two, 92, vec![finished()]).await.is_ok());
}

async fn accepts_requests_for_open_runs(log: &Arc<dyn EventLog>) {
    let run = RunId::from("run_inbox");
    let at = Timestamp::from_millis(7);
    let send = async |request| log.send(request, "ops", at).await.expect("it is sent");
    let cancel = || InboxRequest::Cancel { run: run.clone() };
    assert!(!send(cancel()).await, "there is no such run");
    let mut watch = log.watch_inbox(&run);
    let mut writer = begin(log, "run_inbox", "s-inbox", 60).await;
    watch.changed().await;
    assert!(send(InboxRequest::Input { run: run.clone(), text: "go on".into() }).await);
    assert!(send(cancel()).await);
    watch.changed().await;
    let inbox = log.inbox(&run).await.expect("it is read");
    let kinds: Vec<_> = inbox.iter().map(|message| message.request.kind()).collect();
    assert_eq!(kinds, ["input", "cancel"], "oldest first");
    assert_eq!((&*inbox[0].by, inbox[0].at), ("ops", at));
    writer.take(inbox[0].id);
    assert_eq!(log.inbox(&run).await.expect("it is read").len(), 2, "taken by the append only");
    assert!(write(&mut writer, 61, vec![warning("heard")]).await.is_ok());
    let left = log.inbox(&run).await.expect("it is read");
    assert_eq!(left, inbox[1..], "what an append takes is gone");
    assert!(log.inbox(&"run_other".into()).await.expect("it is read").is_empty());
    assert!(write(&mut writer, 62, vec![finished()]).await.is_ok());
    assert!(log.inbox(&run).await.expect("it is read").is_empty(), "nothing waits for a run's end");
    assert!(!send(cancel()).await, "the run is over");
    assert!(!send(InboxRequest::Input { run: run.clone(), text: "late".into() }).await);
}

async fn keeps_questions_until_they_are_decided(log: &Arc<dyn EventLog>) {
    let mut writer = begin(log, "run_asks", "s-asks", 50).await;
    let asked = |id: &str, call: &str| {
        EventKind::from(ApprovalRequested {
            approval_id: id.into(),
            call_id: call.into(),
            tool: "wipe".into(),
            arguments: json!({"path": "/data"}).into(),
            arguments_hash: "0".into(),
        })
    };
    let waiting = RunWaiting { approvals: vec!["apr_1".into(), "apr_2".into()] };
    let questions = vec![asked("apr_1", "c1"), asked("apr_2", "c2"), waiting.into()];
    assert!(write(&mut writer, 51, questions).await.is_ok());
    let open = log.open_approvals().await.expect("questions are read");
    let ids: Vec<&str> = open.iter().map(|open| open.id.as_str()).collect();
    assert_eq!(ids, ["apr_1", "apr_2"]);
    assert_eq!((&*open[0].tool, open[0].arguments.get()), ("wipe", r#"{"path":"/data"}"#));
    let decide = |id: &'static str, decision| async move {
        let at = Timestamp::from_millis(51);
        log.decide(&id.into(), decision, at).await.expect("a decision is written")
    };
    assert!(!decide("apr_0", Decision::approve("ops")).await, "an unknown question");
    assert!(decide("apr_1", Decision::deny("ops", "no")).await, "the first decision counts");
    assert!(!decide("apr_1", Decision::approve("lead")).await, "the second does not");
    let inbox = log.inbox(&"run_asks".into()).await.expect("the inbox is read");
    let decision = Decision::deny("ops", "no");
    let accepted = InboxRequest::Decide { approval: "apr_1".into(), decision };
    let requests: Vec<_> = inbox.into_iter().map(|message| message.request).collect();
    assert_eq!(requests, [accepted], "the decision waits for the run's writer");
    assert_eq!(log.open_approvals().await.expect("questions are read").len(), 1);
    let reason = Some(Code::new(code::RUN_CANCELLED));
    let cancelled = RunFinished {
        outcome: Outcome::Cancelled,
        reason,
        message: None,
        output: "".into(),
        usage: Usage::default(),
    };
    assert!(write(&mut writer, 52, vec![cancelled.into()]).await.is_ok());
    assert!(log.open_approvals().await.expect("questions are read").is_empty(), "it is over");
    assert!(!decide("apr_2", Decision::approve("ops")).await, "nobody waits for it any more");
}

async fn lists_runs_newest_first(log: &Arc<dyn EventLog>) {
    let of = |session: &str, limit| RunFilter { session: Some(session.into()), limit };
    let runs = log.runs(of("s-busy", None)).await.expect("runs are listed");
    let names: Vec<&str> = runs.iter().map(|run| run.run.as_str()).collect();
    assert_eq!(names, ["run_next", "run_child", "run_open"]);
    let newest = log.runs(of("s-busy", Some(1))).await.expect("runs are listed");
    assert_eq!(newest.len(), 1, "at most as many as asked for");
    assert!(log.runs(of("s-none", None)).await.expect("runs are listed").is_empty());
}

async fn erases_what_an_event_says(log: &Arc<dyn EventLog>) {
    let run = RunId::from("run_erased");
    let missing = log.erase(&run, 1).await;
    assert!(matches!(&missing, Err(LogError::NotFound(_))), "no run: {missing:?}");
    let mut writer = begin(log, "run_erased", "s-erased", 70).await;
    assert!(write(&mut writer, 71, vec![warning("private"), warning("public")]).await.is_ok());
    let refused = log.erase(&run, 2).await;
    assert!(matches!(&refused, Err(LogError::Claimed(_))), "its writer lives: {refused:?}");
    drop(writer);
    let (summary, events) = read_events(&**log, &run).await.expect("a run is read back");
    let whole = log.records(&run, 1).await.expect("records are read");
    let mut copy = RunWriter::copy(Arc::clone(log), "run_copied".into(), &events, whole.clone());
    let forked = RunForked {
        run: Some("run_copied".into()),
        parent: run.clone(),
        at: 3,
        session: Some(session_of_fork(&"run_copied".into())),
    };
    assert!(write(&mut copy, 71, vec![forked.into()]).await.is_ok(), "a copy is kept");
    let unknown = log.erase(&run, 9).await;
    assert!(matches!(&unknown, Err(LogError::NotErasable { seq: 9, .. })), "{unknown:?}");
    for _ in 0..2 {
        let copies = log.erase(&run, 2).await.expect("an event is erased, also again");
        assert_eq!(copies, ["run_copied".into()], "who holds a copy is named");
    }
    let left = log.records(&run, 1).await.expect("records are read");
    assert!(verify(&left, &summary, log.key()).is_ok(), "the chain holds");
    let digest = whole[1].payload.digest().expect("it has a salt");
    assert_eq!(left[1].payload, Payload::Erased(digest));
    assert_eq!((&left[0], &left[2]), (&whole[0], &whole[2]), "the others stay");
    let read = read_events(&**log, &run).await;
    assert!(matches!(&read, Err(LogError::Erased { seq: 2, .. })), "{read:?}");
    let claim = log.claim(&run).await.expect("it is free");
    let mut writer = RunWriter::resume(Arc::clone(log), summary, claim);
    assert!(write(&mut writer, 72, vec![finished()]).await.is_ok(), "it can be ended");
    let verified = verify_run(&**log, &run).await.expect("it verifies");
    assert_eq!((verified.erased, verified.summary.last_seq), (vec![2], 4));
}
