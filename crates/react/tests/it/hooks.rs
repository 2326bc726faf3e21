//! Hooks and approvals through the API.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_error_store::{ErrorFilter, ErrorStore};
use backstop_react::{
    AgentError, ApprovalDesk, ApprovalRequest, Approver, Decision, Gate, GateVerdict, HookContext,
    HookPoint, Moment, Observer,
};
use layer0::error::BoxError;
use layer0::failure::{Chain, Failure};
use layer0::message::Message;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::{Bench, add, broken, call, calls, says, tool_texts, types};

const EVERYWHERE: [HookPoint; 6] = [
    HookPoint::RunStart,
    HookPoint::BeforeModel,
    HookPoint::AfterModel,
    HookPoint::BeforeTool,
    HookPoint::AfterTool,
    HookPoint::RunEnd,
];

/// A hook that writes down its moments.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Observer for Watcher {
    fn name(&self) -> &str {
        "watcher"
    }
    fn points(&self) -> &[HookPoint] {
        &EVERYWHERE
    }
    async fn observe(&self, moment: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        let seen = match moment {
            Moment::RunStart { input, .. } => format!("start {input}"),
            Moment::BeforeModel { messages, .. } => {
                format!("ask with {}", messages.messages().len())
            }
            Moment::AfterModel { text, tool_calls, .. } => {
                format!("said {text:?} and {} calls", tool_calls.len())
            }
            Moment::BeforeTool { call, .. } => format!("runs {}", call.arguments),
            Moment::AfterTool { ok, output, .. } => format!("came to {ok} {output}"),
            Moment::RunEnd { outcome, output, .. } => format!("end {} {output}", outcome.as_str()),
            _ => String::new(),
        };
        self.0.lock().unwrap().push(seen);
        Ok(())
    }
}

/// Adds one to `x`.
struct Shift(&'static str);

#[async_trait]
impl Gate for Shift {
    fn name(&self) -> &str {
        self.0
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeTool]
    }
    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        let Moment::BeforeTool { call, .. } = moment else { return Ok(GateVerdict::Continue) };
        let mut arguments = call.arguments.value();
        arguments["x"] = json!(arguments["x"].as_i64().unwrap_or_default() + 1);
        Ok(GateVerdict::ReplaceArguments(arguments.into()))
    }
}

/// Spec: H1
#[tokio::test]
async fn hook_names_are_checked_at_build() {
    let build = |names: &[&'static str]| {
        let agent =
            backstop_react::Agent::builder(backstop_provider::ScriptedProvider::saying(["x"]));
        let agent = names.iter().fold(agent, |agent, name| agent.gate(Shift(name)));
        agent.build().err().map(|error| Chain(&error).to_string())
    };
    let twice = build(&["shift", "other", "shift"]);
    assert_eq!(twice.as_deref(), Some("there is already a hook named `shift`"));
    assert_eq!(build(&[""]).as_deref(), Some("invalid hook: the name `` is empty"));
    assert_eq!(build(&["a.b", "a_b", "shift again"]), None);
}

/// Spec: H1, T2
#[tokio::test]
async fn observers_see_what_gates_made_of_a_call() {
    let bench = Bench::new();
    let answers =
        vec![calls([call("c1", "add", json!({"x": 40, "y": 0}))]), says("It is forty-two.")];
    let watcher = Watcher::default();
    let agent = bench
        .agent(answers)
        .tool(add)
        .observer(watcher.clone())
        .gate(Shift("shift"))
        .gate(Shift("shift again"));
    bench.run(agent).await.unwrap();
    assert_eq!(
        *watcher.0.lock().unwrap(),
        [
            "start input",
            "ask with 1",
            "said \"\" and 1 calls",
            "runs {\"x\":42,\"y\":0}",
            "came to true 42",
            "ask with 3",
            "said \"It is forty-two.\" and 0 calls",
            "end completed It is forty-two.",
        ]
    );
}

/// Makes every call the same.
struct Same;

#[async_trait]
impl Gate for Same {
    fn name(&self) -> &str {
        "same"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeTool]
    }
    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        Ok(GateVerdict::ReplaceArguments(json!({ "how": "short" }).into()))
    }
}

/// Spec: T9, T2. What failed is what was run, whatever the model asked for.
#[tokio::test]
async fn failures_are_counted_by_replaced_arguments() {
    let bench = Bench::new();
    let asks =
        |n: usize| calls([call(&format!("c{n}"), "broken", json!({ "how": n.to_string() }))]);
    let answers = (1..=5).map(asks).chain([says("It cannot be done.")]).collect();
    let outcome = bench.run(bench.agent(answers).tool(broken).gate(Same)).await.unwrap();
    assert_eq!(outcome.usage.tool_calls, 3, "the same call failed three times in a row");
}

/// A hook that fails at one point, without `fail_open`.
struct Broken(HookPoint);

#[async_trait]
impl Gate for Broken {
    fn name(&self) -> &str {
        "audit"
    }
    fn points(&self) -> &[HookPoint] {
        std::slice::from_ref(&self.0)
    }
    fn fail_open(&self) -> bool {
        false
    }
    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        match moment {
            Moment::RunStart { .. } => {
                let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                Err(Box::new(refused))
            }
            Moment::BeforeModel { .. } => panic!("no audit with api_key=abcdef0123456789"),
            _ => Ok(GateVerdict::ReplaceArguments(json!({}).into())),
        }
    }
}

/// Spec: H2, E4, E5, E10. The live error keeps its cause, the log has a redacted text.
#[tokio::test]
async fn strict_hook_is_the_cause_of_failure() {
    let bench = Bench::new();
    let failure = bench
        .run(bench.agent(vec![says("x")]).gate(Broken(HookPoint::RunStart)))
        .await
        .unwrap_err();
    assert_eq!((failure.code(), failure.usage.model_calls), ("hook.rejected", 0));
    let chain = Chain(&failure.error).to_string();
    assert_eq!(chain, "hook `audit` must not fail: hook failed: connection refused");
    let mut cause: &dyn std::error::Error = &failure;
    while let Some(source) = cause.source() {
        cause = source;
    }
    assert!(cause.is::<std::io::Error>(), "{cause}");

    let agent = bench.agent(vec![says("x")]).gate(Broken(HookPoint::BeforeModel));
    let failure = bench.run(agent).await.unwrap_err();
    let AgentError::HookRejected { source, .. } = &failure.error else { panic!("{failure:#}") };
    assert_eq!(source.code(), "hook.panicked");
    let log = serde_json::to_string(&bench.events(&failure.run_id).await).unwrap();
    assert!(log.contains("api_key=[redacted]") && !log.contains("abcdef0123456789"), "{log}");

    let agent = bench.agent(vec![says("x")]).gate(Broken(HookPoint::AfterModel));
    let failure = bench.run(agent).await.unwrap_err();
    let chain = Chain(&failure.error).to_string();
    assert!(chain.ends_with("there are no arguments to replace here"), "{chain}");
}

/// Says 200,000 characters: as an error, a panic, or the reason of an abort.
struct Wordy(&'static str);

#[async_trait]
impl Gate for Wordy {
    fn name(&self) -> &str {
        "wordy"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::RunStart]
    }
    fn fail_open(&self) -> bool {
        false
    }
    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        let words =
            format!("the ledger is closed\n{}", "row api_key=abcdef0123456789\n".repeat(7_000));
        match self.0 {
            "abort" => Ok(GateVerdict::Abort(words)),
            "panic" => panic!("{words}"),
            _ => Err(words.into()),
        }
    }
}

/// Spec: H2, S1, S4, S9. The record has a line, people can read all of it.
#[tokio::test]
async fn long_words_of_hooks_are_stored() {
    for (how, code) in
        [("error", "hook.failed"), ("panic", "hook.panicked"), ("abort", "hook.aborted")]
    {
        let bench = Bench::new();
        let run = bench.run(bench.agent(vec![says("x")]).gate(Wordy(how))).await;
        let run = run.map_or_else(|failure| failure.run_id, |outcome| outcome.run_id);
        let log = serde_json::to_string(&bench.events(&run).await).unwrap();
        assert!(log.len() < 8_000, "{how}: {} bytes", log.len());
        let stored = bench.errors.list(ErrorFilter::default()).await.unwrap();
        let [stored] = &stored[..] else { panic!("{how}: {stored:?}") };
        assert_eq!((&**stored.tool(), stored.reason().as_str()), ("hook:wordy", code));
        assert!(stored.raw().len() > 100_000 && !stored.raw().contains("abcdef0123456789"));
        let line = format!("the ledger is closed [Error ID: {}]", stored.id());
        assert!(log.contains(&line), "{how}: {log}");
    }
    // Without a store, the record says how much is missing.
    let bench = Bench::new();
    let agent = bench.agent(vec![says("x")]).gate(Wordy("error")).without_error_store();
    let run = bench.run(agent).await.unwrap_err().run_id;
    let log = serde_json::to_string(&bench.events(&run).await).unwrap();
    assert!(log.len() < 8_000 && log.contains("[Cut: 500 of "), "{log}");
}

/// Refunds an order.
#[backstop_tool::tool(approval)]
async fn refund(order: u32) -> Result<String, backstop_tool::ToolError> {
    Ok(format!("refunded {order}"))
}

/// Spec: A1. An approval is decided once, from anywhere in the process.
#[tokio::test]
async fn desk_decides_each_approval_once() {
    let bench = Bench::new();
    let desk = ApprovalDesk::default();
    let both =
        [call("c1", "refund", json!({"order": 1})), call("c2", "refund", json!({"order": 2}))];
    let agent = bench.agent(vec![calls(both), says("done")]).tool(refund).approver(desk.clone());
    let decide = async {
        while desk.open().len() < 2 {
            tokio::task::yield_now().await;
        }
        let open = desk.open();
        let of = |order: u32| {
            let asked =
                |asked: &&ApprovalRequest| asked.approval.arguments.value()["order"] == order;
            open.iter().find(asked).unwrap().approval.id.clone()
        };
        desk.deny(&of(2), "ops", "not this one").unwrap();
        desk.approve(&of(1), "ops").unwrap();
        let again = desk.approve(&of(1), "ops").unwrap_err();
        assert!(Chain(&again).to_string().ends_with(&format!("no open approval `{}`", of(1))));
        assert!(desk.approve(&"apr_0000000000000000".into(), "ops").is_err());
    };
    let (outcome, ()) = tokio::join!(bench.run(agent), decide);
    let outcome = outcome.unwrap();
    let texts = tool_texts(&outcome);
    assert_eq!(texts[0], ("refunded 1".to_owned(), false));
    assert_eq!(texts[1], ("Denied by ops: not this one".to_owned(), true));
    let events = bench.events(&outcome.run_id).await;
    let granted = types(&events).iter().filter(|kind| **kind == "approval.granted").count();
    assert_eq!((granted, desk.open().len()), (1, 0));
}

/// An approver that panics.
struct Panics;

#[async_trait]
impl Approver for Panics {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        panic!("no people here")
    }
}

/// Spec: A1, E11
#[tokio::test]
async fn undecided_run_waits_naming_its_approvals() {
    let bench = Bench::new();
    for approver in [false, true] {
        let answers = vec![calls([call("c1", "refund", json!({"order": 1}))]), says("done")];
        let mut agent = bench.agent(answers).tool(refund);
        if approver {
            agent = agent.approver(Panics);
        }
        let outcome = bench.run(agent).await.unwrap();
        assert_eq!(outcome.stop, Stop::WaitingApproval);
        assert_eq!(outcome.approvals.len(), 1);
        assert_eq!(outcome.approvals[0].arguments, json!({"order": 1}));
        assert_eq!(outcome.usage.tool_calls, 0);
        let last = outcome.transcript.messages().last().unwrap();
        assert!(matches!(&**last, Message::Assistant { .. }));
    }
}

/// Panics before there is a future, with a value that panics when it is dropped.
struct PanicsAtOnce;

struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("and again");
    }
}

impl Approver for PanicsAtOnce {
    fn decide<'a, 'b, 'f>(
        &'a self,
        _: &'b ApprovalRequest,
    ) -> Pin<Box<dyn Future<Output = Option<Decision>> + Send + 'f>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        std::panic::panic_any(PanicsAgain)
    }
}

/// Spec: A1, E11
#[tokio::test]
async fn an_approver_without_a_future_leaves_it_open() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "refund", json!({"order": 1}))]), says("done")];
    let outcome = bench.run(bench.agent(answers).tool(refund).approver(PanicsAtOnce)).await;
    assert_eq!(outcome.unwrap().stop, Stop::WaitingApproval);
}

/// Panics wherever it can.
struct Nasty(&'static str);

#[derive(Debug)]
struct Unprintable;
impl std::fmt::Display for Unprintable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("not to be shown")
    }
}
impl std::error::Error for Unprintable {}

#[derive(Debug)]
struct Circle;
impl std::fmt::Display for Circle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("round")
    }
}
impl std::error::Error for Circle {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self)
    }
}

/// Panics when it is dropped.
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped")
    }
}

#[async_trait]
impl Gate for Nasty {
    fn name(&self) -> &str {
        self.0
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::RunStart]
    }
    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        match self.0 {
            "unprintable" => Err(Box::new(Unprintable)),
            "circle" => Err(Box::new(Circle)),
            "payload" => std::panic::panic_any(Bomb),
            _ => {
                let _bomb = Bomb;
                std::future::pending().await
            }
        }
    }
}

/// Spec: E11, H2. A hook cannot take the run with it, whatever it does.
#[tokio::test]
async fn no_hook_takes_the_run_with_it() {
    for (name, reason) in [
        ("unprintable", "hook.panicked"),
        ("circle", "hook.failed"),
        ("payload", "hook.panicked"),
        ("bomb", "hook.timeout"),
    ] {
        let bench = Bench::new();
        let outcome = bench.run(bench.agent(vec![says("x")]).gate(Nasty(name))).await.unwrap();
        let events = bench.events(&outcome.run_id).await;
        let failed = events.iter().find_map(|event| match &event.kind {
            layer0::event::EventKind::HookFailed(failed) => Some(failed.reason.to_string()),
            _ => None,
        });
        assert_eq!(failed.as_deref(), Some(reason), "{name}");
    }
}

/// Fails with what cannot be shown.
#[backstop_tool::tool]
async fn unprintable() -> Result<(), Unprintable> {
    Err(Unprintable)
}

struct Odd(backstop_tool::ToolSpec, std::sync::atomic::AtomicUsize);

#[async_trait]
impl backstop_tool::Tool for Odd {
    fn spec(&self) -> &backstop_tool::ToolSpec {
        let asked = self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        assert!(asked == 0, "asked twice");
        &self.0
    }
    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        _: &backstop_tool::ToolContext,
    ) -> Result<backstop_tool::JsonText, backstop_tool::ToolError> {
        Err(backstop_tool::ToolError::Other(Box::new(Unprintable)))
    }
}

/// Spec: E11
#[tokio::test]
async fn no_tool_takes_the_run_with_it() {
    let bench = Bench::new();
    let odd = Odd(
        backstop_tool::ToolSpec::new("odd", "d", json!({"type": "object"})),
        std::sync::atomic::AtomicUsize::new(0),
    );
    let batch = calls([call("c1", "unprintable", json!({})), call("c2", "odd", json!({}))]);
    let agent = bench.agent(vec![batch, says("done")]).tool(unprintable).tool(odd);
    let outcome = bench.run(agent).await.unwrap();
    for (text, _) in tool_texts(&outcome) {
        assert!(text.contains("panicked: "), "{text}");
    }
}

/// Spec: B3. A run that another one started ends with a complete record when that one is stopped.
#[tokio::test]
async fn abandoned_agent_tool_records_its_end() {
    /// Never ends.
    #[backstop_tool::tool]
    async fn hang() -> Result<(), backstop_tool::ToolError> {
        std::future::pending().await
    }
    let bench = Bench::new();
    let child = bench
        .agent(vec![calls([call("c1", "hang", json!({}))])])
        .name("child")
        .tool(hang)
        .build()
        .unwrap();
    let ask = calls([call("c1", "child", json!({"input": "go"}))]);
    let tool = child.as_tool("Hangs.").timeout(std::time::Duration::from_secs(1));
    bench.run(bench.agent(vec![ask, says("it hung")]).tool(tool)).await.unwrap();
    loop {
        let runs =
            backstop_event_log::Runs::runs(&*bench.log, backstop_event_log::RunFilter::default())
                .await;
        let runs = runs.unwrap();
        let child = runs.iter().find(|run| &*run.agent == "child").unwrap();
        if !child.is_open() {
            assert_eq!(child.reason, Some("budget.wall_time".into()));
            return;
        }
        tokio::task::yield_now().await;
    }
}
