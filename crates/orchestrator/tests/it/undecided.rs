//! Steps that wait for a decision that does not come, or that only say that they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, EventLog, Inbox, Log, MemoryLog, RunState};
use backstop_orchestrator::{OnFailure, Parallel, Sequence};
use backstop_provider::ScriptedAnswer;
use backstop_react::{ApprovalRequest, Approver, OperatorTool};
use futures_util::future::{Either, select};
use layer0::Orchestrator;
use layer0::event::EventKind;
use layer0::failure::{Chain, Failure};
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use serde_json::json;

use crate::agents::{agent, has_answers, pay};
use crate::process::{own, record, run_of};
use crate::waits::asking;
use crate::workflow_bounds::model_calls;
use crate::workflows::{dispatch, workflow};
use crate::{builder, on, start};

type Decides = fn() -> Option<Decision>;

/// Takes a while, and gives no decision that counts.
struct Undecided(VirtualClock, Decides);

#[async_trait]
impl Approver for Undecided {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.sleep(Duration::from_secs(1)).await;
        (self.1)()
    }
}

/// Spec: A1, O2. A workflow for which nothing else can be done ends as waiting, as its step does by itself.
#[tokio::test]
async fn workflow_without_a_decision_ends_waiting() {
    let misfit = || {
        let arguments = layer0::JsonText::parse("5").unwrap();
        Some(Decision::approve("ops").with_arguments(arguments))
    };
    let decides: [(&str, Decides); 3] =
        [("says nothing", || None), ("panics", || panic!("no terminal")), ("does not fit", misfit)];
    for (how, decides) in decides {
        for name in ["payer", "line", "outer", "both"] {
            let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::default());
            let payer = asking(&clock, &log, &paid).approver(Undecided(clock.clone(), decides));
            let quick = agent(&clock, &log, |_| ScriptedAnswer::saying("quick")).name("quick");
            let orchestrator = builder(&clock)
                .operator(payer.build().unwrap())
                .operator(quick.build().unwrap())
                .operator(workflow(Sequence::new("line", ["quick", "payer"]), &clock, &log))
                .operator(workflow(Sequence::new("outer", ["line"]), &clock, &log))
                .operator(workflow(Parallel::new("both", ["payer", "quick"]), &clock, &log))
                .build()
                .unwrap();
            let time = clock.clone();
            let dispatch = on(&clock, async move {
                let dispatch = orchestrator.dispatch(name, Task::text("x"), Context::root());
                match select(dispatch, time.sleep(Duration::from_secs(3_600))).await {
                    Either::Left((answer, _)) => Some(answer),
                    Either::Right(_) => None,
                }
            });
            let answer = dispatch.await.unwrap_or_else(|| panic!("{name}, {how}: it never ends"));
            assert_eq!(answer.unwrap().stop, Stop::WaitingApproval, "{name}, {how}");
            assert_eq!(log.open_approvals().await.unwrap().len(), 1, "{name}, {how}");
            let row = log.summary(&run_of(&log, name).await).await.unwrap().unwrap();
            assert_eq!(row.state, RunState::WaitingApproval, "{name}, {how}");
            assert_eq!(paid.load(Ordering::SeqCst), 0, "{name}, {how}");
        }
    }
}

/// Spec: O2, O6. Nothing would resume it: the step fails, and its workflow ends.
#[tokio::test]
async fn step_that_only_says_it_waits_fails() {
    for name in ["ticket", "desk"] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let ticket = own("ticket", |_, _| async {
            let mut answer = Answer::from_output(json!("open"));
            answer.stop = Stop::WaitingApproval;
            Ok(answer)
        });
        let desk =
            own("desk", |task, context| async move { context.dispatch("ticket", task).await });
        let orchestrator = builder(&clock)
            .operator(ticket)
            .operator(desk)
            .operator(workflow(Sequence::new("line", [name]), &clock, &log))
            .build()
            .unwrap();
        let error = dispatch(&clock, &orchestrator, "line", "x").await.unwrap_err();
        assert_eq!(error.code(), "operator.non_retryable");
        let text = Chain(&error).to_string();
        assert!(text.ends_with(&format!("`{name}` waits, and did not say for what")), "{text}");
        let row = log.summary(&run_of(&log, "line").await).await.unwrap().unwrap();
        assert_eq!(row.state, RunState::Failed);
        let returned = record(&log, "line").await.into_iter().find_map(|event| match event.kind {
            EventKind::OperatorReturned(returned) => Some(returned),
            _ => None,
        });
        assert_eq!(returned.unwrap().outcome, layer0::stop::Outcome::Failed);
    }
}

/// Spec: O2. A person may decide in days: a run that wants more ends with what it has, and is not held up by a run
/// beside it that keeps its budget while it waits for a decision.
#[tokio::test]
async fn nothing_is_left_beside_an_open_approval() {
    for name in ["both", "plain", "lead"] {
        let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::default());
        let talks = AtomicU32::new(0);
        let talker = agent(&clock, &log, move |_| {
            ScriptedAnswer::calling("pay", json!({ "at": talks.fetch_add(1, Ordering::SeqCst) }))
        });
        let talker = talker.name("talker").tool(pay).state(Arc::<AtomicU32>::default());
        let both = |name| Parallel::new(name, ["payer", "talker"]).on_failure(OnFailure::Collect);
        let lead = agent(&clock, &log, |request| match has_answers(request) {
            true => ScriptedAnswer::saying("done"),
            false => ScriptedAnswer::calling("both", json!({ "input": "go" })),
        });
        let lead = lead.name("lead").tool(OperatorTool::new("both", "Asks both."));
        let orchestrator = builder(&clock)
            .operator(asking(&clock, &log, &paid).build().unwrap())
            .operator(talker.build().unwrap())
            .operator(workflow(both("both"), &clock, &log))
            .operator(both("plain"))
            .operator(lead.build().unwrap())
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap();
        let (time, of) = (clock.clone(), Arc::clone(&log));
        let work = async move {
            let task = Task::text("x").allowance(model_calls(if name == "lead" { 6 } else { 4 }));
            let dispatch = orchestrator.dispatch(name, task, Context::root());
            let looks = async {
                time.sleep(Duration::from_secs(3_600)).await;
                of.summary(&run_of(&of, "talker").await).await.unwrap().unwrap()
            };
            match select(dispatch, Box::pin(looks)).await {
                Either::Left((answer, looks)) => (Some(answer), looks.await),
                Either::Right((row, _)) => (None, row),
            }
        };
        let (answer, talker) = on(&clock, work).await;
        assert_eq!(talker.reason, Some("budget.model_calls".into()), "{name}: it has ended");
        let open = log.open_approvals().await.unwrap();
        assert_eq!(open.len(), 1, "{name}: nobody has decided");
        // Without a record, the code reads that the step waits.
        let expected = if name == "plain" { Stop::Completed } else { Stop::WaitingApproval };
        if let Some(answer) = answer {
            assert_eq!(answer.unwrap().stop, expected, "{name}");
        }
    }
}
