//! Kinds of conversations, and holding them.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::layer0::message::Image;
use backstop::{
    Agent, AgentBuilder, ApprovalRequest, Approver, CancellationToken, Decision, EventLog,
    ForkRequest, Limits, MemoryLog, ReopenRequest, RunRequest, ScriptedAnswer, ToolContext,
    ToolError, tool,
};
use backstop_provider::ScriptedToolCall;
use backstop_testkit::strict::{Dialect, StrictServer};
use layer0::ToolSpec;
use layer0::failure::Failure;
use serde_json::{Value, json};

use super::endpoints::connect;
use super::odd_tools::{
    Halts, Listed, beyond_subsets, in_draft_4, with_alternatives, with_odd_keys,
};

/// A kind of conversation: answers of the endpoint, and the runs that are held with it.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) script: fn(Dialect) -> Vec<ScriptedAnswer>,
    talk: Talk,
}

/// The runs of a conversation.
#[derive(Clone, Copy)]
enum Talk {
    Denied,
    Fork,
    ForkBeforeAnswer,
    Pictures,
    Reopened,
    /// Runs in one session, with these inputs.
    Runs(&'static [&'static str]),
    Stopped,
    /// A run with a tool of this name and schema.
    Tool(&'static str, fn() -> Value),
    ToolsGone,
    Typed,
}

pub(super) const KINDS: &[Kind] = &[
    Kind { name: "text", script: |_| vec![says("3")], talk: Talk::Runs(&["go"]) },
    Kind { name: "call", script: |to| vec![calls(to, 0, 1), says("3")], talk: Talk::Runs(&["go"]) },
    Kind {
        name: "parallel",
        script: |to| vec![calls(to, 0, 2), calls(to, 1, 3), says("3")],
        talk: Talk::Runs(&["go"]),
    },
    Kind {
        name: "session",
        script: |to| vec![calls(to, 0, 1), says("3"), calls(to, 1, 2), says("4"), says("5")],
        talk: Talk::Runs(&["one", "two", "three"]),
    },
    Kind {
        name: "blank",
        script: |to| vec![calls(to, 0, 1).text(" \n"), says("3 \n"), says("4")],
        talk: Talk::Runs(&["one", "two"]),
    },
    Kind {
        name: "malformed",
        script: |to| vec![malformed(to), says("3"), says("4")],
        talk: Talk::Runs(&["one", "two"]),
    },
    Kind {
        name: "fork",
        script: |to| vec![calls(to, 0, 1), says("3"), says("4")],
        talk: Talk::Fork,
    },
    Kind {
        name: "fork-before-answer",
        script: |to| vec![calls(to, 0, 1), says("3"), says("4")],
        talk: Talk::ForkBeforeAnswer,
    },
    Kind {
        name: "reopened",
        script: |to| vec![calls(to, 0, 1), says("3"), says("4")],
        talk: Talk::Reopened,
    },
    Kind {
        name: "stopped",
        script: |to| vec![one_call(to, 0, "halt"), says("3"), says("4")],
        talk: Talk::Stopped,
    },
    Kind {
        name: "denied",
        script: |to| vec![one_call(to, 0, "wipe"), says("3"), says("4")],
        talk: Talk::Denied,
    },
    Kind {
        name: "tools-gone",
        script: |to| vec![calls(to, 0, 1), says("3"), says("4")],
        talk: Talk::ToolsGone,
    },
    Kind {
        name: "pictures",
        script: |to| vec![one_call(to, 0, "draw"), says("3"), says("4")],
        talk: Talk::Pictures,
    },
    Kind { name: "typed", script: |_| vec![says("{\"sum\":3}")], talk: Talk::Typed },
    Kind {
        name: "tool-alternatives",
        script: |_| vec![says("3")],
        talk: Talk::Tool("search", with_alternatives),
    },
    Kind {
        name: "tool-keys",
        script: |_| vec![says("3")],
        talk: Talk::Tool("search", with_odd_keys),
    },
    Kind {
        name: "tool-draft-4",
        script: |_| vec![says("3")],
        talk: Talk::Tool("search", in_draft_4),
    },
    Kind {
        name: "tool-beyond-subsets",
        script: |_| vec![says("3")],
        talk: Talk::Tool("search", beyond_subsets),
    },
    Kind {
        name: "tool-name",
        script: |_| vec![says("3")],
        talk: Talk::Tool(
            "3rd.party__a_name_of_sixty_four_characters_with_a_digit_in_front",
            || json!({ "type": "object" }),
        ),
    },
];

/// An endpoint, and what outlives the runs.
pub(super) struct Bench {
    server: StrictServer,
    answers: usize,
    log: Arc<dyn EventLog>,
    streamed: bool,
}

type Held = Result<(), String>;

impl Bench {
    pub(super) fn start(dialect: Dialect, script: Vec<ScriptedAnswer>, streamed: bool) -> Self {
        let answers = script.len();
        let server = StrictServer::start(dialect, script);
        Self { server, answers, log: Arc::new(MemoryLog::new()), streamed }
    }

    /// Holds a conversation. The error is the rule that a request broke, or the code of what failed.
    pub(super) async fn hold(&self, kind: &Kind) -> Held {
        let held = self.talk(kind.talk).await;
        if let Some(refusal) = self.server.refusals().first() {
            return Err(refusal.rule.to_owned());
        }
        held?;
        let (answered, answers) = (self.server.answered(), self.answers);
        if answered == answers { Ok(()) } else { Err(format!("answered-{answered}-of-{answers}")) }
    }

    fn agent(&self) -> AgentBuilder {
        let agent = AgentBuilder::from_shared(connect(&self.server));
        let agent = agent.name("a").instructions("Help.").stream(self.streamed);
        agent.shared_log(Arc::clone(&self.log))
    }

    async fn talk(&self, talk: Talk) -> Held {
        let agent = self.agent().tool(look);
        match talk {
            Talk::Runs(inputs) => {
                let agent = agent.build().unwrap();
                for input in inputs {
                    run(&agent, RunRequest::new(*input).session("s")).await?;
                }
                Ok(())
            }
            Talk::Fork | Talk::ForkBeforeAnswer => self.fork(agent, talk).await,
            Talk::Reopened => {
                let short = agent.limits(Limits::new().max_iterations(1)).build().unwrap();
                let stopped = short.run("one").await.unwrap_err();
                let agent = self.agent().tool(look).build().unwrap();
                let request = ReopenRequest::new(stopped.run_id).by("ops").message("Go on.");
                let request = request.allow_other_agent();
                let opened = agent.reopen(request).await.map_err(|error| fault(&error))?;
                run(&agent, RunRequest::new("two").session(opened.session)).await
            }
            Talk::Stopped => {
                let token = CancellationToken::new();
                let halt = ToolSpec::new("halt", "Halts.", look_schema());
                let agent = agent.tool(Halts(halt, token.clone())).build().unwrap();
                let request = RunRequest::new("one").session("s").cancelled_by(token);
                let _ = agent.run(request).await.map_err(|error| fault(&error))?;
                for input in ["two", "three"] {
                    run(&agent, RunRequest::new(input).session("s")).await?;
                }
                Ok(())
            }
            Talk::Denied => {
                let agent = agent.tool(wipe).approver(Denies).build().unwrap();
                for input in ["one", "two"] {
                    run(&agent, RunRequest::new(input).session("s")).await?;
                }
                Ok(())
            }
            Talk::ToolsGone => {
                run(&agent.build().unwrap(), RunRequest::new("one").session("s")).await?;
                let without = self.agent().build().unwrap();
                run(&without, RunRequest::new("two").session("s")).await
            }
            Talk::Pictures => {
                let agent = agent.tool(draw).build().unwrap();
                let picture = Image::from_bytes(b"\x89PNG\r\n\x1a\nand so on").unwrap();
                let request = RunRequest::new("one").images([picture]).session("s");
                run(&agent, request).await?;
                run(&agent, RunRequest::new("two").session("s")).await
            }
            Talk::Tool(name, schema) => {
                let listed = Listed(ToolSpec::new(name, "Searches.", schema()));
                let agent = agent.tool(listed).build().map_err(|_| "not-built".to_owned())?;
                run(&agent, RunRequest::new("one")).await
            }
            Talk::Typed => {
                let note = json!({ "type": "string" });
                let sum = json!({ "type": "integer", "minimum": 0 });
                let schema = json!({
                    "type": "object", "properties": { "sum": sum, "note": note }, "required": ["sum"],
                });
                run(&agent.output_schema(schema).build().unwrap(), RunRequest::new("one")).await
            }
        }
    }

    async fn fork(&self, agent: AgentBuilder, talk: Talk) -> Held {
        let agent = agent.build().unwrap();
        let whole = agent.run("one").await.map_err(|error| fault(&error))?;
        let summary = self.log.summary(&whole.run_id).await.unwrap().unwrap();
        let back = if matches!(talk, Talk::Fork) { 0 } else { 3 };
        let request = ForkRequest::new(whole.run_id, summary.last_seq - back).input("And now?");
        agent.fork(request).await.map(drop).map_err(|error| fault(&error))
    }
}

/// Holds a session in which two endpoints answer in turns, each with calls.
pub(super) async fn hold_in_turns(from: Dialect, to: Dialect, streamed: bool) -> Held {
    let script = |dialect| vec![calls(dialect, 0, 2), says("3"), calls(dialect, 1, 1), says("4")];
    let first = Bench::start(from, script(from), streamed);
    let mut second = Bench::start(to, script(to), streamed);
    second.log = Arc::clone(&first.log);
    let mut held = Ok(());
    for (bench, input) in [(&first, "one"), (&second, "two"), (&first, "three"), (&second, "four")]
    {
        let agent = bench.agent().tool(look).build().unwrap();
        held = run(&agent, RunRequest::new(input).session("s")).await;
        // The adapter's own mistakes at the first endpoint are other cells.
        if let Some(refusal) = second.server.refusals().first() {
            return Err(refusal.rule.to_owned());
        }
        if held.is_err() {
            break;
        }
    }
    match first.server.refusals().first() {
        Some(refusal) => Err(format!("{}-at-{}", refusal.rule, from.name())),
        None => held,
    }
}

async fn run(agent: &Agent, request: RunRequest) -> Held {
    let outcome = agent.run(request).await.map_err(|error| fault(&error))?;
    if outcome.stop == backstop::Stop::Completed {
        Ok(())
    } else {
        Err(format!("stopped-{:?}", outcome.stop).replace(char::is_whitespace, ""))
    }
}

fn fault(error: &impl Failure) -> String {
    format!("failed-{}", error.code())
}

fn says(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::saying(text)
}

/// Thinks and calls the tool `look`, as often at once as is said.
fn calls(dialect: Dialect, turn: usize, count: usize) -> ScriptedAnswer {
    let call = |at| {
        let place = json!({ "place": format!("{turn}.{at}") });
        ScriptedToolCall::new(dialect.call_id(turn, at), "look", place)
    };
    thinks(dialect, turn).text("Let me see.").tool_calls((0..count).map(call))
}

fn one_call(dialect: Dialect, turn: usize, name: &str) -> ScriptedAnswer {
    let call = ScriptedToolCall::new(dialect.call_id(turn, 0), name, json!({ "place": "here" }));
    thinks(dialect, turn).tool_calls([call])
}

/// Calls with arguments that are no JSON, where the protocol has a form for them.
fn malformed(dialect: Dialect) -> ScriptedAnswer {
    let arguments = match dialect {
        Dialect::Bedrock | Dialect::Anthropic | Dialect::Gemini | Dialect::Ollama => json!({}),
        _ => json!("{\"place\": "),
    };
    let call = ScriptedToolCall::new(dialect.call_id(0, 0), "look", arguments);
    thinks(dialect, 0).tool_calls([call])
}

fn thinks(dialect: Dialect, turn: usize) -> ScriptedAnswer {
    match dialect {
        Dialect::Mistral | Dialect::OpenAiChat => ScriptedAnswer::default(),
        _ => ScriptedAnswer::default().thinking(format!("Thought {turn}.")),
    }
}

fn look_schema() -> Value {
    json!({ "type": "object", "properties": { "place": { "type": "string" } } })
}

/// Looks somewhere.
#[tool]
async fn look(place: String) -> Result<String, ToolError> {
    Ok(format!("nothing at {place}"))
}

/// Wipes everything.
#[tool(approval)]
async fn wipe(place: String) -> Result<String, ToolError> {
    panic!("wiped {place}")
}

/// Draws.
#[tool]
async fn draw(place: String, context: &ToolContext) -> Result<String, ToolError> {
    context.show_image(Image::from_bytes(b"GIF89a").unwrap()).unwrap();
    Ok(format!("drawn at {place}"))
}

struct Denies;

#[async_trait]
impl Approver for Denies {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        Some(Decision::deny("ops", "no"))
    }
}
