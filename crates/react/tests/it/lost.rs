//! A child run whose record is gone, or was changed, when its caller is resumed.

use std::sync::Arc;

use backstop_event_log::{Batch, EventLog, Payload};
use backstop_react::{RunRequest, replay};
use layer0::event::EventKind;
use layer0::stop::Stop;

use crate::bench::*;
use crate::tape::Tape;
use crate::tree::{World, root, to_the_end};

/// Records a tree that waits for a person, and returns its appends.
async fn waiting(bench: &Bench) -> Vec<Batch> {
    let tape = Arc::new(Tape::default());
    let agent = root(bench, &(Arc::clone(&tape) as Arc<dyn EventLog>), &Arc::default());
    let request = RunRequest::new("go").run("run_root".into());
    let outcome = on(bench, async move { agent.run(request).await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
    tape.batches()
}

/// Resumes the root, and returns the answer of the clerk's call.
async fn clerks_answer(bench: &Bench, batches: &[Batch]) -> (String, String) {
    let tape = Tape::after(batches).await;
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let agent = root(bench, &log, &World::after(batches));
    let outcome = to_the_end(bench, &agent, &*log).await;
    assert_eq!(outcome.stop, Stop::Completed, "the model is told, and goes on");
    let events = backstop_event_log::read_events(&*tape, &"run_root".into()).await.unwrap().1;
    let answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) if &*answer.tool == "clerk" => answer.error.as_ref(),
        _ => None,
    });
    let answers: Vec<_> = answers.collect();
    let [answer] = &answers[..] else { panic!("one answer: {answers:?}") };
    replay(&*tape, &"run_root".into()).await.unwrap();
    let code = answer.code.as_deref().unwrap_or(answer.reason.as_str());
    (code.to_owned(), answer.message.to_string())
}

fn is_clerk(batch: &Batch) -> bool {
    &*batch.summary.agent == "clerk"
}

/// Spec: O3, D5. What a run below did is not done again because its record is gone.
#[tokio::test]
async fn lost_record_below_is_a_failure() {
    let bench = Bench::new();
    let mut batches = waiting(&bench).await;
    batches.retain(|batch| !is_clerk(batch));
    let (code, message) = clerks_answer(&bench, &batches).await;
    assert_eq!(code, "log.lost_tail");
    assert!(message.contains("the record of `run_"), "{message}");
}

/// Spec: O3, D1
#[tokio::test]
async fn changed_record_below_is_a_failure() {
    let bench = Bench::new();
    let mut batches = waiting(&bench).await;
    let first = batches.iter_mut().find(|batch| is_clerk(batch)).unwrap();
    let Payload::Salted(_, text) = &mut first.records[0].payload else { panic!("it is salted") };
    *text = text.replace("see to it", "see to us");
    let (code, message) = clerks_answer(&bench, &batches).await;
    assert_eq!(code, "log.tampered");
    assert!(message.contains("the run cannot be taken over"), "{message}");
}
