//! Operators within walls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_environment::{Network, Rules};
use layer0::error::{EnvError, OperatorError};
use layer0::failure::{Effect, Retry};
use layer0::operator::{Answer, Context, OperatorProgram, Signal, Task};
use layer0::stop::Stop;
use layer0::usage::Allowance;
use layer0::{Environment, Failure, Operator};
use serde_json::{Value, json};

use crate::support::{becomes, block_on, has_python, new_mark, processes_with, variables, walls};

/// Time limit for the start or the answer of a program.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum lifetime of a program after it was ended.
const SOON: Duration = Duration::from_secs(5);

/// An operator that is a Python program, or runs in this process.
struct Worker {
    script: Option<String>,
    takes_signals: bool,
}

#[async_trait]
impl Operator for Worker {
    fn name(&self) -> &str {
        "worker"
    }

    fn program(&self) -> Option<OperatorProgram> {
        let arguments = ["-c".to_owned(), self.script.clone()?];
        let program = OperatorProgram::new("python3", arguments, "/", variables());
        Some(if self.takes_signals { program.takes_signals() } else { program })
    }

    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        unreachable!("it runs in walls")
    }
}

async fn asked(rules: Rules, script: Option<&str>) -> Result<Answer, EnvError> {
    let worker = Worker { script: script.map(str::to_owned), takes_signals: false };
    walls(rules).run(Arc::new(worker), Task::json(json!([20, 22])), Context::root()).await
}

/// Runs a script as an operator in a context.
async fn asked_in(
    context: Context,
    script: impl Into<String>,
    takes_signals: bool,
) -> Result<Answer, EnvError> {
    let worker = Worker { script: Some(script.into()), takes_signals };
    walls(Rules::new().network(Network::None)).run(Arc::new(worker), Task::text("x"), context).await
}

/// Returns a script that hangs, with a child that hangs too; their commands contain the mark.
fn hanging(mark: &str) -> String {
    format!("import subprocess; subprocess.run(['sh', '-c', 'sleep 600; : {mark}'])")
}

/// Spec: N3
pub(crate) fn answer_comes_from_the_program() {
    if !has_python() {
        return;
    }
    block_on(async {
        let rules = || Rules::new().files().network(Network::None);
        let sum = "import json; print('noise'); print(json.dumps({'output': sum(json.loads(input())['input'])}))";
        assert_eq!(asked(rules(), Some(sum)).await.unwrap().output, json!(42));
        let failing = "print('{\"error\": {\"code\": \"bad\", \"message\": \"no such sum\"}}')";
        let error = asked(rules(), Some(failing)).await.unwrap_err();
        assert!(error.what().contains("bad: no such sum"), "{}", error.what());
        for (unfit, part) in [
            ("pass", "there is none"),
            ("print('[]')", "its answer cannot be read"),
            ("print('{\"output\": 1}'); raise SystemExit(3)", "ended with exit status 3"),
        ] {
            let error = asked(rules(), Some(unfit)).await.unwrap_err();
            assert!(matches!(error, EnvError::OperatorError(_)), "{error:?}");
            assert!(error.what().contains(part), "{}", error.what());
        }
    });
}

/// Spec: N3
pub(crate) fn wall_is_the_reason_of_failure() {
    if !has_python() {
        return;
    }
    block_on(async {
        let rules = || Rules::new().files().network(Network::None);
        let error = asked(rules(), Some("open('/etc/shadow')")).await.unwrap_err();
        assert_eq!(error.code(), "operator.non_retryable", "{error:?}");
        let granted = "(granted: read none, write none; network none)";
        assert!(error.what().ends_with(granted), "{}", error.what());
        let asking = "import urllib.request; urllib.request.urlopen('http://example.org/')";
        let error = asked(rules(), Some(asking)).await.unwrap_err();
        assert_eq!(error.code(), "env.network_denied");
    });
}

/// Spec: N3
pub(crate) fn operator_of_this_process_is_refused() {
    let error = block_on(asked(Rules::new(), None)).unwrap_err();
    assert_eq!(error.code(), "env.provision_failed");
    assert!(error.what().starts_with("operator `worker` runs in this process"), "{error}");
}

/// Spec: N3. What an operator may know of its context, it is told.
pub(crate) fn context_is_told() {
    if !has_python() {
        return;
    }
    let echo = "import sys, json; print(json.dumps({'output': json.load(sys.stdin)}))";
    let echoed = |context| block_on(asked_in(context, echo, false)).unwrap().output;
    let bare = json!({ "input": "x", "context": { "attempt": 1, "depth": 0 } });
    assert_eq!(echoed(Context::root()), bare);
    let deadline = SystemClock.now().after(PATIENCE);
    let mut context = Context::root();
    context.session = Some("s-1".into());
    context.run = Some("run_2".into());
    context.parent = Some("run_1".into());
    context.root = Some("run_0".into());
    (context.attempt, context.depth) = (2, 3);
    context.deadline = Some(deadline);
    let mut allowance = Allowance::without_bounds();
    allowance.model_calls = Some(5);
    context.allowance = Some(allowance);
    context.labels = Arc::new([("team".to_owned(), "ops".to_owned())].into());
    let told = json!({
        "attempt": 2, "depth": 3, "session": "s-1", "run": "run_2", "parent": "run_1", "root": "run_0",
        "deadline": deadline, "allowance": { "model_calls": 5 }, "labels": { "team": "ops" },
    });
    assert_eq!(echoed(context), json!({ "input": "x", "context": told }));
}

/// Spec: N3
pub(crate) fn deadline_ends_the_program() {
    if !has_python() {
        return;
    }
    block_on(async {
        let mark = new_mark();
        let mut context = Context::root();
        context.deadline = Some(SystemClock.now().after(Duration::from_secs(3)));
        let asked = tokio::spawn(asked_in(context, hanging(&mark), false));
        assert!(becomes(PATIENCE, || processes_with(&mark) >= 2).await, "it runs");
        let error = asked.await.unwrap().unwrap_err();
        assert_eq!(error.code(), "budget.wall_time", "{error:?}");
        assert_eq!(
            error.what(),
            "operator stopped on `budget.wall_time`: `worker` did not end in time"
        );
        assert_eq!((error.retry(), error.effect()), (Retry::Never, Effect::Unknown));
        assert!(becomes(SOON, || processes_with(&mark) == 0).await, "it lives on");
    });
}

/// Spec: N3
pub(crate) fn deadline_that_has_passed_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("begun");
    let mut context = Context::root();
    context.deadline = Some(SystemClock.now());
    let script = format!("open({trace:?}, 'w')");
    let error = block_on(asked_in(context, script, false)).unwrap_err();
    assert_eq!((error.code(), error.effect()), ("budget.wall_time", Effect::None));
    assert!(!trace.exists());
}

/// Spec: N3
pub(crate) fn cancelled_program_is_ended() {
    if !has_python() {
        return;
    }
    block_on(async {
        for takes_signals in [false, true] {
            let (mark, context) = (new_mark(), Context::root());
            let signals = context.signals.clone();
            let asked = tokio::spawn(asked_in(context, hanging(&mark), takes_signals));
            assert!(becomes(PATIENCE, || processes_with(&mark) >= 2).await, "it runs");
            signals.push(Signal::cancel());
            let answer = asked.await.unwrap().unwrap();
            assert_eq!((answer.stop, answer.output), (Stop::Cancelled, Value::Null));
            assert!(becomes(SOON, || processes_with(&mark) == 0).await, "it lives on");
        }
    });
}

/// Spec: N3. In order, and one that is cancelled while it reads nothing is ended all the same.
pub(crate) fn signals_are_passed_on() {
    if !has_python() {
        return;
    }
    let reads = "import json; input(); it = [json.loads(input())['signal'] for _ in range(2)]; \
                 print(json.dumps({'output': it}))";
    block_on(async {
        let context = Context::root();
        context.signals.push(Signal::new("faster", json!({ "by": 2 })));
        context.signals.push(Signal::new("input", json!("hello")));
        let answer = asked_in(context, reads, true).await.unwrap();
        let told = json!([{ "name": "faster", "data": { "by": 2 } }, { "name": "input", "data": "hello" }]);
        assert_eq!(answer.output, told);

        let context = Context::root();
        // More than a pipe can hold.
        context.signals.push(Signal::new("long", json!("x".repeat(1_000_000))));
        let signals = context.signals.clone();
        let mark = new_mark();
        let asked = tokio::spawn(asked_in(context, hanging(&mark), true));
        assert!(becomes(PATIENCE, || processes_with(&mark) >= 2).await, "it runs");
        signals.push(Signal::cancel());
        assert_eq!(asked.await.unwrap().unwrap().stop, Stop::Cancelled);
    });
}

/// Spec: N3
pub(crate) fn signal_that_is_not_taken_is_refused() {
    if !has_python() {
        return;
    }
    block_on(async {
        let (mark, context) = (new_mark(), Context::root());
        context.signals.push(Signal::new("faster", Value::Null));
        let error = asked_in(context, hanging(&mark), false).await.unwrap_err();
        let what = "operator `worker` was sent the signal `faster`, and its program takes none but `cancel`";
        assert_eq!((error.code(), &*error.what()), ("operator.non_retryable", what));
        assert!(becomes(SOON, || processes_with(&mark) == 0).await, "it lives on");
    });
}
