//! Generated trees of agents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop::clock::Clock;
use backstop::layer0::error::OperatorError;
use backstop::layer0::failure::Effect;
use backstop::layer0::id::RunId;
use backstop::layer0::message::Message;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::provider::{ErrorKind, ScriptedToolCall};
use backstop::react::OperatorTool;
use backstop::{
    Agent, ApprovalRequest, Approver, Decision, EventLog, LocalOrchestrator, Operator,
    ScriptedAnswer, ScriptedProvider, ToolContext, ToolError, tool,
};
use backstop_testkit::contract::{Acts, ResumableRun};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::process::{Process, ROOT};
use super::workflows::delayed;

/// An agent: what it calls in each of its turns, at once.
#[derive(Debug, Clone)]
pub(super) struct Node {
    turns: Vec<Vec<Deed>>,
    /// Whether its model is to be asked later.
    parks: bool,
}

/// A call of an agent.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    /// A tool that acts.
    Pay,
    /// A tool that may be repeated.
    Look,
    /// A tool that a person in this process decides about.
    Sign { agrees: bool },
    /// A tool that waits for a person elsewhere.
    Seal,
    /// A tool that fails and did nothing.
    Refuse,
    /// A tool that fails and may have acted.
    Lose,
    /// An operator without a record.
    Plain,
    /// Another agent.
    Child(Node),
}

impl Deed {
    const fn child(&self) -> Option<&Node> {
        match self {
            Self::Child(child) => Some(child),
            _ => None,
        }
    }

    const fn tool(&self) -> &'static str {
        match self {
            Self::Pay => "pay",
            Self::Look => "look",
            Self::Sign { .. } => "sign",
            Self::Seal => "seal",
            Self::Refuse => "refuse",
            Self::Lose => "lose",
            Self::Plain => "plain",
            Self::Child(_) => "",
        }
    }
}

/// A tree, and what it may use.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: Node,
    model_calls: Option<u32>,
}

impl Node {
    /// Returns the children that run at the same time, by turn.
    fn children(&self) -> impl Iterator<Item = Vec<&Self>> {
        self.turns.iter().map(|turn| turn.iter().filter_map(Deed::child).collect())
    }

    fn is_parallel(&self) -> bool {
        self.children().any(|turn| turn.len() > 1 || turn.into_iter().any(Self::is_parallel))
    }

    fn has_parked(&self) -> bool {
        self.parks || self.children().flatten().any(Self::has_parked)
    }

    /// Returns an agent that calls everything at once, and then everything again in a child.
    fn with_everything() -> Self {
        let deeds = || {
            let agrees = [true, false].map(|agrees| Deed::Sign { agrees });
            let others = [Deed::Pay, Deed::Look, Deed::Refuse, Deed::Lose, Deed::Plain, Deed::Seal];
            others.into_iter().chain(agrees).collect::<Vec<_>>()
        };
        let child = Self { turns: vec![deeds()], parks: true };
        Self { turns: vec![deeds(), vec![Deed::Child(child), Deed::Look]], parks: false }
    }
}

impl Tree {
    /// Returns a tree with every kind of call.
    pub(super) fn with_everything() -> Self {
        Self { root: Node::with_everything(), model_calls: Some(9) }
    }
}

/// Draws trees.
pub(super) fn trees() -> impl Strategy<Value = Tree> {
    let deed = prop_oneof![
        Just(Deed::Pay),
        Just(Deed::Look),
        any::<bool>().prop_map(|agrees| Deed::Sign { agrees }),
        Just(Deed::Seal),
        Just(Deed::Refuse),
        Just(Deed::Lose),
        Just(Deed::Plain),
    ];
    let node = |deed: BoxedStrategy<Deed>| {
        let turn = prop::collection::vec(deed, 1..3);
        (prop::collection::vec(turn, 0..2), prop::bool::weighted(0.2))
            .prop_map(|(turns, parks)| Node { turns, parks })
    };
    let deed = deed.prop_recursive(2, 6, 2, move |deed| node(deed.boxed()).prop_map(Deed::Child));
    let root = prop::collection::vec(prop::collection::vec(deed, 1..4), 1..3);
    (root, prop::bool::weighted(0.2), prop::option::weighted(0.3, 1..8_u32))
        .prop_map(|(turns, parks, model_calls)| Tree { root: Node { turns, parks }, model_calls })
}

/// Acts, and returns an answer that names the place of the call.
fn act(at: &str, context: &ToolContext) -> String {
    let acts: &Acts = context.state().expect("the agent has its acts");
    acts.call(&context.run, &context.call_id);
    format!("done at {at}")
}

/// Pays.
#[tool]
async fn pay(at: String, context: &ToolContext) -> Result<String, ToolError> {
    Ok(act(&at, context))
}

/// Looks something up.
#[tool(idempotent)]
async fn look(at: String) -> Result<String, ToolError> {
    Ok(format!("seen at {at}"))
}

/// Signs.
#[tool(approval)]
async fn sign(at: String, agrees: bool, context: &ToolContext) -> Result<String, ToolError> {
    assert!(agrees, "a denied call does not run");
    Ok(act(&at, context))
}

/// Seals.
#[tool(approval)]
async fn seal(at: String, context: &ToolContext) -> Result<String, ToolError> {
    Ok(act(&at, context))
}

/// Refuses.
#[tool]
async fn refuse(at: String) -> Result<String, ToolError> {
    Err(ToolError::ExecutionFailed(format!("not today at {at}")).with_effect(Effect::None))
}

/// Acts, and loses the answer.
#[tool]
async fn lose(at: String, context: &ToolContext) -> Result<String, ToolError> {
    act(&at, context);
    Err(ToolError::ExecutionFailed("no answer".into()))
}

/// An operator that keeps no record.
struct Plain(Acts);

#[async_trait]
impl Operator for Plain {
    fn name(&self) -> &str {
        "plain"
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        self.0.run(context.run.as_ref().unwrap());
        Ok(Answer::from_output("plain".into()))
    }
}

/// Decides about `sign` as its arguments say, and leaves the rest to others.
struct Agrees;

#[async_trait]
impl Approver for Agrees {
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision> {
        match request.approval.arguments.value()["agrees"].as_bool()? {
            true => Some(Decision::approve("ops")),
            false => Some(Decision::deny("ops", "no")),
        }
    }
}

/// Builds the agent of a node; its name is its place in the tree.
fn build(node: &Node, name: &str, process: &Process, acts: &Acts) -> Agent {
    let clock: Arc<dyn Clock> = Arc::new(process.clock.clone());
    let calls: Vec<Vec<ScriptedToolCall>> = calls(node, name);
    let (own, was_asked) = (name.to_owned(), AtomicBool::new(!node.parks));
    let model = ScriptedProvider::from_fn(move |request| {
        if !was_asked.swap(true, Ordering::SeqCst) {
            return delayed(ErrorKind::RateLimited, Duration::from_secs(600));
        }
        let messages = request.messages.messages();
        let turn = messages.iter().filter(|it| matches!(***it, Message::Assistant { .. })).count();
        match calls.get(turn) {
            Some(calls) => ScriptedAnswer::default().tool_calls(calls.clone()),
            None => ScriptedAnswer::saying(format!("{own}({})", length(messages))),
        }
    });
    let mut agent = Agent::builder(model)
        .name(name)
        .clock(clock)
        .state(acts.clone())
        .shared_log(Arc::clone(&process.log))
        .approver(Agrees);
    let mut known = BTreeSet::new();
    for (turn, deeds) in node.turns.iter().enumerate() {
        for (index, deed) in deeds.iter().enumerate() {
            let is_new = known.insert(deed.tool());
            agent = match deed {
                Deed::Child(child) => {
                    let child = build(child, &format!("{name}-{turn}-{index}"), process, acts);
                    agent.tool(child.as_tool("Does a part."))
                }
                _ if !is_new => agent,
                Deed::Pay => agent.tool(pay),
                Deed::Look => agent.tool(look),
                Deed::Sign { .. } => agent.tool(sign),
                Deed::Seal => agent.tool(seal),
                Deed::Refuse => agent.tool(refuse),
                Deed::Lose => agent.tool(lose),
                Deed::Plain => agent.tool(OperatorTool::new("plain", "Works.")),
            };
        }
    }
    agent.build().unwrap()
}

/// Returns the calls of a node, by turn.
fn calls(node: &Node, name: &str) -> Vec<Vec<ScriptedToolCall>> {
    let call = |turn: usize, index: usize, deed: &Deed| {
        let place = format!("{name}-{turn}-{index}");
        let (tool, arguments) = match deed {
            Deed::Child(_) => (&*place, json!({ "input": "go" })),
            Deed::Plain => (deed.tool(), json!({ "input": place })),
            Deed::Sign { agrees } => (deed.tool(), json!({ "at": place, "agrees": agrees })),
            _ => (deed.tool(), json!({ "at": place })),
        };
        ScriptedToolCall::new(format!("c{turn}-{index}"), tool, arguments)
    };
    let turns = node.turns.iter().enumerate();
    turns
        .map(|(turn, deeds)| {
            deeds.iter().enumerate().map(|(index, deed)| call(turn, index, deed)).collect()
        })
        .collect()
}

/// Returns the length of what the tools said.
fn length(messages: &[Arc<Message>]) -> usize {
    let texts = messages.iter().map(|message| match &**message {
        Message::Tool { content, .. } => content.len(),
        _ => 0,
    });
    texts.sum()
}

#[async_trait]
impl ResumableRun for Tree {
    fn root(&self) -> RunId {
        ROOT.into()
    }
    async fn perform(&self, log: Arc<dyn EventLog>, acts: Acts) -> Result<Value, String> {
        let process = Process::new(log);
        let root = build(&self.root, "root", &process, &acts);
        let orchestrator = LocalOrchestrator::builder()
            .clock(Arc::new(process.clock.clone()))
            .max_park(Duration::from_secs(3_600))
            .operator(Plain(acts))
            .operator(root)
            .build()
            .unwrap();
        process.perform(orchestrator, self.model_calls).await
    }
    fn is_repeatable(&self, tool: &str) -> bool {
        tool == Deed::Look.tool()
    }
    fn has_budget(&self) -> bool {
        self.model_calls.is_some()
    }
    fn is_used_alike(&self) -> bool {
        !self.root.is_parallel() && !self.root.has_parked()
    }
}
