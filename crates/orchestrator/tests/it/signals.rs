//! What is sent to a run, and what becomes of it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{EventLog, MemoryLog, RunFilter, read_events};
use backstop_provider::{ModelRequest, ScriptedAnswer};
use backstop_react::{Gate, HookContext, HookPoint, Moment, Verdict, replay};
use layer0::Orchestrator;
use layer0::error::BoxError;
use layer0::failure::Failure;
use layer0::operator::{Context, Signal, Task};
use serde_json::json;

use crate::agents::agent;
use crate::{builder, on, start};

/// Writes down the signals that it is shown, and stops the run at `stop`.
struct Ear(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Gate for Ear {
    fn name(&self) -> &str {
        "ear"
    }

    fn points(&self) -> &[HookPoint] {
        &[HookPoint::Signal]
    }

    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<Verdict, BoxError> {
        let Moment::Signal { name, data, .. } = moment else { return Err("no signal".into()) };
        self.0.lock().unwrap().push(format!("{name} {data}"));
        match name {
            "stop" => Ok(Verdict::Abort("it was asked to".into())),
            "odd" => Err("what is that?".into()),
            _ => Ok(Verdict::Continue),
        }
    }
}

/// Spec: O2. A signal that is neither `cancel` nor `input` reaches hooks, which may stop the run.
#[tokio::test]
async fn signals_of_other_names_reach_hooks() {
    let (clock, log, heard) = (start(), Arc::<MemoryLog>::default(), Arc::default());
    let ear = Ear(Arc::clone(&heard));
    let answer = |_: &ModelRequest| ScriptedAnswer::saying("late").delay_ms(3_600_000);
    let waiting = agent(&clock, &log, answer).name("waiting").gate(ear).build().unwrap();
    let orchestrator = builder(&clock).operator(waiting).build().unwrap();
    let context = Context::root();
    for signal in [
        Signal::new("look", json!({ "at": 1 })),
        Signal::new("input", json!("hurry")),
        Signal::new("odd", json!(null)),
        Signal::new("stop", json!("now")),
    ] {
        context.signals.push(signal);
    }
    let failed = on(&clock, async move {
        orchestrator.dispatch("waiting", Task::text("x"), context).await.unwrap_err()
    });
    assert_eq!(failed.await.code(), "hook.aborted");
    assert_eq!(*heard.lock().unwrap(), ["look {\"at\":1}", "odd null", "stop \"now\""]);
    let run = log.runs(RunFilter::new()).await.unwrap().pop().unwrap().run;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let types: Vec<&str> = events.iter().map(|event| event.kind.event_type()).collect();
    assert_eq!(types.iter().filter(|it| **it == "hook.failed").count(), 1);
    assert_eq!(types.last(), Some(&"run.failed"));
    replay(&*log, &run).await.unwrap();
}
