//! Conversations that the caller brings along, and sessions that nothing is known of.

use std::sync::Arc;

use backstop_event_log::{EventLog, MemoryLog, read_events};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, AgentError, History, HistoryFault, RequestError, RunRequest, StreamItem,
    replay,
};
use backstop_redact::Redactor;
use layer0::event::EventKind;
use layer0::failure::{Effect, Failure, chain};
use layer0::message::{Message, ToolCall, Transcript};
use serde_json::json;

fn builder(answers: Vec<ScriptedAnswer>) -> AgentBuilder {
    Agent::builder(ScriptedProvider::new(answers)).instructions("Be brief.")
}

fn texts(transcript: &Transcript) -> Vec<String> {
    let text = |message: &Arc<Message>| match &**message {
        Message::System { content } => format!("system: {content}"),
        Message::User { content, .. } => format!("user: {content}"),
        Message::Assistant { content, .. } => format!("assistant: {content}"),
        Message::Tool { content, .. } => format!("tool: {content}"),
        other => panic!("{other:?}"),
    };
    transcript.messages().iter().map(text).collect()
}

fn asks(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall::new(*id, "add", json!({"x": 1, "y": 2}));
    Message::assistant("", ids.iter().map(call).collect())
}

fn answers(id: &str) -> Message {
    Message::tool(id.into(), "3", false)
}

fn says(text: &str) -> Message {
    Message::assistant(text, Arc::default())
}

/// Spec: E12. What would be ignored is refused, with how to mend it.
#[tokio::test]
async fn session_without_a_log_is_refused() {
    let agent = builder(vec![]).build().unwrap();
    let failure = agent.run(RunRequest::new("?").session("s-1")).await.unwrap_err();
    let AgentError::InvalidRequest(error) = &failure.error else { panic!("{failure:?}") };
    assert!(
        matches!(error, RequestError::SessionWithoutLog { session, .. } if session.as_str() == "s-1")
    );
    assert_eq!((failure.code(), failure.effect()), ("input.invalid", Effect::None));
    assert!(failure.hint().contains("log(MemoryLog::new())") && failure.hint().contains("history"));
    assert_eq!(failure.usage.model_calls, 0);
    let mut stream = agent.stream(RunRequest::new("?").session("s-1"));
    let Some(StreamItem::Ended(Err(failure))) = stream.next().await else { panic!("it fails") };
    assert_eq!(failure.code(), "input.invalid");
}

/// Spec: D2, D6. A history is in the record, so that the run is replayed from it, and the session
/// goes on with it.
#[tokio::test]
async fn history_is_said_and_recorded() {
    let log = Arc::new(MemoryLog::new());
    let shared = || Arc::clone(&log) as Arc<dyn EventLog>;
    let history = [
        Message::user("Add 1 and 2."),
        asks(&["c1"]),
        answers("c1"),
        says("3, not the-secret-key"),
    ];
    let redactor = Redactor::new().with_secret("the-secret-key");
    let model = vec![crate::bench::says("six"), crate::bench::says("seven")];
    let agent = builder(model).shared_log(shared()).redactor(redactor).build().unwrap();
    let request = RunRequest::new("Twice that?").history(history).session("s-1");
    let first = agent.run(request).await.unwrap();
    let said = texts(&first.transcript);
    assert_eq!(said[..4], ["system: Be brief.", "user: Add 1 and 2.", "assistant: ", "tool: 3"]);
    assert!(!said[4].contains("the-secret-key"), "{said:?}");
    assert_eq!(said[5..], ["user: Twice that?", "assistant: six"]);
    let (_, events) = read_events(&*log, &first.run_id).await.unwrap();
    let EventKind::RunStarted(started) = &events[0].kind else { panic!("it starts") };
    assert_eq!(started.history.messages(), &first.transcript.messages()[1..5]);
    replay(&*log, &first.run_id).await.unwrap();
    agent.replay(&first.run_id).await.unwrap();
    let again = agent.resume(first.run_id.clone()).await.unwrap();
    assert_eq!(again, first, "what is rebuilt from the record is the same");

    let next = agent.run(RunRequest::new("And one?").session("s-1")).await.unwrap();
    let both = texts(&next.transcript);
    assert_eq!(both[..7], said[..]);
    assert_eq!(both[7..], ["user: And one?", "assistant: seven"]);
    replay(&*log, &next.run_id).await.unwrap();
    let request = RunRequest::new("?").session("s-1").history(&next.transcript);
    let failure = agent.run(request).await.unwrap_err();
    assert!(
        matches!(&failure.error, AgentError::InvalidRequest(RequestError::HistoryInSession { follows, .. })
            if *follows == next.run_id),
        "{failure:?}"
    );
}

/// Spec: D2. The transcript of any run is a history, that of a stopped one included.
#[tokio::test]
async fn transcript_of_a_stopped_run_is_a_history() {
    let agent = builder(vec![crate::bench::says("yes")]).build().unwrap();
    let token = backstop_react::CancellationToken::new();
    token.cancel();
    let stopped = agent.run(RunRequest::new("first").cancelled_by(token)).await.unwrap();
    assert!(stopped.stop.reason().is_some());
    let next = agent.run(RunRequest::new("next").history(stopped.transcript)).await.unwrap();
    assert_eq!(next.text(), "yes");
}

/// Spec: E12
#[test]
fn impossible_histories_are_refused() {
    #[track_caller]
    fn check<const N: usize>(messages: [Message; N], index: usize, why: HistoryFault) {
        let error = History::from(messages).check().unwrap_err();
        let RequestError::InvalidHistory { index: at, why: fault, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((*at, *fault), (index, why));
        assert!(!error.hint().is_empty());
        for cause in chain(&error) {
            assert!(!cause.ends_with('.') && !cause.contains('\n'), "{cause}");
        }
    }
    use HistoryFault::*;
    let user = || Message::user("a");
    check([Message::system("Be brief."), user(), says("b")], 0, System);
    check([says("b")], 0, NotBegunByUser);
    check([answers("c1")], 0, UnknownCall);
    check([user(), user()], 1, SameSpeaker);
    check([user(), says("b"), says("c")], 2, SameSpeaker);
    check([user(), says("b"), user()], 2, UserAtTheEnd);
    check([user(), says(" ")], 1, Empty);
    check([Message::user("")], 0, Empty);
    check([user(), asks(&["c1"])], 1, UnansweredCall);
    check([user(), asks(&["c1", "c2"]), answers("c2"), says("b")], 3, UnansweredCall);
    check([user(), asks(&["c1"]), answers("c1"), answers("c1")], 3, UnknownCall);
    check([user(), asks(&["c1"]), user()], 2, UnansweredCall);
    check([user(), asks(&["c1", "c1"])], 1, RepeatedCall);
    check([user(), says("b"), answers("c1")], 2, UnknownCall);
    let good =
        [user(), asks(&["c1", "c2"]), answers("c2"), answers("c1"), asks(&["c1"]), answers("c1")];
    assert_eq!(History::from(good).check(), Ok(()));
    assert_eq!(History::default().check(), Ok(()));
}
