//! Agents that cannot be made.

use std::time::Duration;

use async_trait::async_trait;
use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, Gate, GateVerdict, HookContext, HookPoint, Moment, Observer, Pack,
    Upstream,
};
use layer0::error::BoxError;
use layer0::failure::Chain;

/// The part that panics when its properties are read.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Name,
    Points,
    FailOpen,
}

impl Broken {
    fn check(self, asked: Self) {
        assert!(self != asked, "no idea");
    }
}

#[async_trait]
impl Gate for Broken {
    fn name(&self) -> &str {
        self.check(Self::Name);
        "broken"
    }
    fn points(&self) -> &[HookPoint] {
        self.check(Self::Points);
        &[]
    }
    fn fail_open(&self) -> bool {
        self.check(Self::FailOpen);
        true
    }
    async fn judge(&self, _: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        Ok(GateVerdict::Continue)
    }
}

#[async_trait]
impl Observer for Broken {
    fn name(&self) -> &str {
        Gate::name(self)
    }
    fn points(&self) -> &[HookPoint] {
        Gate::points(self)
    }
    fn fail_open(&self) -> bool {
        Gate::fail_open(self)
    }
    async fn observe(&self, _: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        Ok(())
    }
}

#[async_trait]
impl Provider for Broken {
    fn name(&self) -> &str {
        panic!("no idea")
    }
    fn model(&self) -> &str {
        "m"
    }
    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        unreachable!("it is not built")
    }
}

#[track_caller]
fn check(agent: AgentBuilder) {
    let why = agent.build().err().map(|error| Chain(&error).to_string());
    assert_eq!(why.as_deref(), Some("a part of the agent panicked: no idea"));
}

/// Spec: E11, H2
#[test]
fn parts_that_panic_are_errors_of_the_build() {
    let agent = || Agent::builder(ScriptedProvider::saying(["x"]));
    for broken in [Broken::Name, Broken::Points, Broken::FailOpen] {
        check(agent().gate(broken));
        check(agent().observer(broken));
        check(agent().pack(Pack::new("pack").gate(broken)));
        check(agent().pack(Pack::new("pack").observer(broken)));
    }
    check(Agent::builder(Broken::Name));
    check(agent().fallback(Broken::Name));
}

/// Say how many there are.
#[backstop_tool::tool]
async fn count(stock: backstop_tool::State<Vec<i64>>) -> Result<usize, backstop_tool::ToolError> {
    Ok(stock.len())
}

/// Spec: E12
#[test]
fn a_state_of_another_type_is_refused() {
    let agent = || Agent::builder(ScriptedProvider::saying([""])).tool(count);
    for agent in [agent(), agent().state("no numbers")] {
        let error = agent.build().unwrap_err().to_string();
        assert!(
            error.contains("tool `count` takes a state of type `alloc::vec::Vec<i64>`"),
            "{error}"
        );
    }
    assert!(agent().state(vec![1_i64]).build().is_ok());
}

/// Spec: E12. Attempts that have no time, and a part of every tool's name.
#[test]
fn settings_that_mean_nothing_are_refused() {
    let agent = || Agent::builder(ScriptedProvider::saying(["42"]));
    let upstream = Upstream::new(ScriptedProvider::saying(["42"])).attempt_timeout(Duration::ZERO);
    for (agent, key) in [
        (agent().attempt_timeout(Duration::ZERO), "attempt_timeout"),
        (agent().endpoint(upstream), "attempt_timeout"),
        (agent().exploratory_tool(" "), "exploratory_tools"),
    ] {
        let refused = Chain(&agent.build().unwrap_err()).to_string();
        assert!(refused.contains(&format!("`{key}`")), "{refused}");
    }
}

/// Spec: E7, E12. The error message names the tool that is wrong.
#[test]
fn build_errors_name_their_tool() {
    let agent = Agent::builder(ScriptedProvider::saying([""])).state(Vec::<i64>::new());
    let error = agent.tool(count).tool(count).build().unwrap_err();
    assert_eq!(error.to_string(), "invalid tool `count`");
    let chain = Chain(&error).to_string();
    assert_eq!(chain, "invalid tool `count`: there is already a tool named `count`");
}

/// Wipe it all.
#[backstop_tool::tool(approval)]
async fn wipe() -> Result<(), backstop_tool::ToolError> {
    Ok(())
}

/// Spec: E12, A1. Without a log and an approver, no approval can be decided.
#[tokio::test]
async fn approvals_need_a_log_or_an_approver() {
    let agent = || Agent::builder(ScriptedProvider::saying(["done"])).tool(wipe);
    let failure = agent().build().unwrap().run("go").await.unwrap_err();
    assert_eq!((failure.code(), failure.usage.model_calls), ("config.invalid", 0));
    let text = Chain(&failure.error).to_string();
    assert!(text.contains("tool `wipe` needs an approval, which nobody can give"), "{text}");
    let required = Agent::builder(ScriptedProvider::saying([""])).state(Vec::<i64>::new());
    let required = required.tool(count).require_approval("count").build().unwrap();
    assert_eq!(required.run("go").await.unwrap_err().code(), "config.invalid");
    let logged = agent().log(backstop_event_log::MemoryLog::new()).build().unwrap();
    assert!(logged.run("go").await.is_ok());
}
