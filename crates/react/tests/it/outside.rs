//! Names and reasons from callers: sessions, the authors of decisions and their reasons.

use backstop_event_log::{Inbox, InboxRequest, Runs};
use backstop_react::{Agent, ApprovalDesk, ResumeRequest, RunRequest};
use backstop_redact::Redactor;
use backstop_tool::{ToolError, tool};
use layer0::failure::{Chain, Failure};
use layer0::id::RunId;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

const KEY: &str = "held-secret-key";

/// Wipes.
#[tool(approval)]
async fn wipe() -> Result<String, ToolError> {
    Ok("wiped".into())
}

fn agent(bench: &Bench) -> Agent {
    let answers = vec![calls([call("c1", "wipe", json!({}))]), says("done")];
    bench
        .agent(answers)
        .tool(wipe)
        .shared_log(bench.log.clone())
        .redactor(Redactor::new().with_secret(KEY))
        .build()
        .unwrap()
}

#[track_caller]
fn refused<T>(result: Result<T, impl Failure + 'static>, text: &str) {
    let Err(error) = result else { panic!("{text}") };
    assert_eq!((error.code(), &*Chain(&error).to_string()), ("input.invalid", text));
}

/// Spec: A1, E12. What is to say something and does not is refused, and changes nothing.
#[tokio::test]
async fn blank_names_and_inputs_are_refused() {
    let bench = Bench::new();
    let agent = agent(&bench);
    let waiting = agent.run("go").await.unwrap();
    assert_eq!(waiting.stop, Stop::WaitingApproval);
    let (run, id) = (&waiting.run_id, &waiting.approvals[0].id);
    for blank in ["", " \t\n"] {
        refused(agent.approve(id, blank).await, "the decision has a blank `by`");
        refused(agent.deny(id, blank, "no").await, "the decision has a blank `by`");
        refused(agent.cancel(run, blank).await, "the request has a blank `by`");
        refused(agent.send_input(run, blank, "text").await, "the request has a blank `by`");
        refused(agent.send_input(run, "ops", blank).await, "the request has a blank `text`");
        let resume = ResumeRequest::new(run.clone()).by(blank);
        refused(agent.resume(resume).await, "the request has a blank `by`");
        refused(ApprovalDesk::default().approve(id, blank), "the decision has a blank `by`");
        for (request, what) in [
            (RunRequest::new("go").session(blank), "must not be empty"),
            (RunRequest::new("go").run(RunId::from(blank)), "the run id is blank"),
            (RunRequest::new("go").parent(RunId::from(blank)), "the parent's id is blank"),
        ] {
            let failure = agent.run(request).await.unwrap_err();
            let text = Chain(&failure).to_string();
            assert!(text.ends_with(what), "{text}");
        }
    }
    assert!(bench.log.inbox(run).await.unwrap().is_empty());
    assert_eq!(bench.log.open_approvals().await.unwrap().len(), 1);
    let runs = bench.log.runs(backstop_event_log::RunFilter::default()).await.unwrap();
    assert!(runs.iter().all(|run| !run.session.as_str().trim().is_empty()), "{runs:?}");
}

/// Spec: S9, E10. What is sent to a run lies in its store until the run takes it.
#[tokio::test]
async fn what_is_sent_holds_no_key() {
    let bench = Bench::new();
    let agent = agent(&bench);
    let waiting = agent.run("go").await.unwrap();
    let run = &waiting.run_id;
    assert!(agent.send_input(run, KEY, format!("use {KEY}")).await.unwrap());
    agent.deny(&waiting.approvals[0].id, KEY, KEY).await.unwrap();
    let rows = bench.log.inbox(run).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert!(!format!("{rows:?}").contains(KEY), "{rows:?}");
    let text = "use [redacted]".into();
    assert_eq!(rows[0].request, InboxRequest::Input { run: run.clone(), text });
    assert!(agent.cancel(run, KEY).await.unwrap());
    let events = bench.events(run).await;
    assert_eq!(events.last().unwrap().kind.event_type(), "run.finished");
    assert!(!format!("{events:?}").contains(KEY));
}
