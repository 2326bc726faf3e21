//! One tool in each place: in this process, an operator, a program, a walled program, and the tool of a server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop::clock::{Clock, SystemClock, VirtualClock};
use backstop::layer0::error::OperatorError;
use backstop::layer0::failure::Effect;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::layer0::{JsonText, ToolSpec};
use backstop::react::OperatorTool;
use backstop::redact::Redactor;
use backstop::tool::{Arguments, FnTool, Probe, ToolSource};
use backstop::{Helper, McpServer, Network, Operator, Rules, Tool, ToolContext, ToolError, Walls};
use backstop_builtin_tools::{CommandTool, Program};
use backstop_testkit::{Ending, Loopback, Reply, Request};
use serde_json::{Value, json};

pub(super) const SECRET: &str = "sk-4716203958aa";
/// Limit of the time of a call.
const LIMIT: Duration = Duration::from_secs(2);

/// The behaviour of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Answers with a secret of the process.
    TellsSecret,
    /// Answers something that does not fit its schema.
    Misfits,
    /// Fails, and may have acted.
    IsLost,
    /// Fails, and did nothing.
    IsRefused,
    /// Takes longer than it may.
    IsSlow,
    /// Answers more than a model reads at once.
    TellsMuch,
    /// Fails, and its probe knows the call.
    IsProbed,
}

impl Act {
    pub(super) const ALL: [Self; 7] = [
        Self::TellsSecret,
        Self::Misfits,
        Self::IsLost,
        Self::IsRefused,
        Self::IsSlow,
        Self::TellsMuch,
        Self::IsProbed,
    ];

    /// Returns the output, if the tool answers with one.
    fn output(self) -> Option<Value> {
        match self {
            Self::TellsSecret => Some(json!({ "paid": 1, "key": SECRET })),
            Self::Misfits => Some(json!({ "paid": "yes" })),
            Self::TellsMuch => Some(json!({ "paid": 1, "rows": vec!["x".repeat(40); 1_000] })),
            Self::IsLost | Self::IsRefused | Self::IsSlow | Self::IsProbed => None,
        }
    }

    async fn perform(self, clock: VirtualClock) -> Result<Value, ToolError> {
        if self == Self::IsSlow {
            clock.sleep(100 * LIMIT).await;
        }
        let lost = ToolError::ExecutionFailed("connection lost".into());
        let is_refused = self == Self::IsRefused;
        let failed = if is_refused { lost.with_effect(Effect::None) } else { lost };
        self.output().ok_or(failed)
    }

    /// Returns the command line of a program that behaves so.
    fn command_line(self) -> String {
        let end = match (self, self.output()) {
            (Self::TellsMuch, _) => {
                r#"printf '{"paid":1,"rows":["'; head -c 40000 /dev/zero | tr '\0' x; printf '"]}'"#
                    .to_owned()
            }
            (_, Some(output)) => format!("echo '{output}'"),
            (Self::IsSlow, _) => "sleep 600".to_owned(),
            _ => "echo connection lost >&2; exit 1".to_owned(),
        };
        format!("echo x >> begun; {end}")
    }

    /// Returns the reply of a server that behaves so to a call.
    fn reply(self, call: &Value) -> Reply {
        let content = |output: Value| {
            let content = json!([{ "type": "text", "text": output.to_string() }]);
            result(call, &json!({ "content": content, "structuredContent": output }))
        };
        match (self, self.output()) {
            (_, Some(output)) => content(output),
            (Self::IsRefused, _) => Reply::new(429, "text/plain", "slow down"),
            (Self::IsSlow, _) => content(json!({})).ending(Ending::HangBeforeHead),
            _ => content(json!({})).ending(Ending::CloseAt(9)),
        }
    }
}

/// The place of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In this process.
    Here,
    /// An operator without a record.
    Operator,
    /// A program.
    Program,
    /// A program within walls.
    Walled,
    /// A server of tools.
    Server,
}

impl Place {
    /// Returns whether real time passes there.
    pub(super) const fn is_outside(self) -> bool {
        matches!(self, Self::Program | Self::Walled | Self::Server)
    }
}

/// A tool in its place.
pub(super) struct Subject {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) operator: Option<Working>,
    begun: Begun,
}

/// The executions of a tool.
enum Begun {
    Counted(Arc<AtomicUsize>),
    Noted(tempfile::TempDir),
    Received(Loopback),
}

impl Subject {
    /// Puts a tool in its place. `once`: its calls are made once for their argument `n`.
    pub(super) async fn new(place: Place, act: Act, clock: &VirtualClock, once: bool) -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Begun::Counted(Arc::clone(&count));
        let (tool, operator, begun): (Arc<dyn Tool>, _, _) = match place {
            Place::Here => {
                let clock = clock.clone();
                let tool = FnTool::new("work", "Works.", move |_: Value| {
                    count.fetch_add(1, Ordering::SeqCst);
                    act.perform(clock.clone())
                });
                (Arc::new(tool.map_spec(|_| spec())), None, counted)
            }
            Place::Operator => {
                let input = json!({ "type": "object" });
                let tool = OperatorTool::new("work", "Works.").input_schema(&input).timeout(LIMIT);
                let schema = output_schema();
                let working = Working { act, clock: clock.clone(), schema, count };
                (Arc::new(tool), Some(working), counted)
            }
            Place::Program | Place::Walled => {
                let folder = tempfile::tempdir().unwrap();
                let program = program(act, folder.path(), place == Place::Walled);
                (Arc::new(CommandTool::new(spec(), program)), None, Begun::Noted(folder))
            }
            Place::Server => {
                let server = Loopback::serving(move |request| serve(act, request));
                let limit = if act == Act::IsSlow { LIMIT } else { 30 * LIMIT };
                let client = McpServer::url("box", server.url())
                    .timeout(limit)
                    .redactor(Redactor::new())
                    .connect()
                    .await
                    .unwrap();
                (client.tools().remove(0), None, Begun::Received(server))
            }
        };
        let is_probed = act == Act::IsProbed && operator.is_none();
        let tool = if once || is_probed { Adapted::around(tool, once, is_probed) } else { tool };
        Self { tool, operator, begun }
    }

    /// Returns how often the tool has begun.
    pub(super) fn begun(&self) -> usize {
        match &self.begun {
            Begun::Counted(count) => count.load(Ordering::SeqCst),
            Begun::Noted(folder) => {
                let noted = std::fs::read_to_string(folder.path().join("begun"));
                noted.unwrap_or_default().lines().count()
            }
            Begun::Received(server) => {
                let is_call = |request: &Request| request.body["method"] == "tools/call";
                server.requests().into_iter().filter(is_call).count()
            }
        }
    }
}

fn output_schema() -> Value {
    json!({ "type": "object", "properties": { "paid": { "type": "number" } } })
}

fn spec() -> ToolSpec {
    let mut spec = ToolSpec::new("work", "Works.", json!({ "type": "object" })).timeout(LIMIT);
    spec.output_schema = Some(output_schema().into());
    spec
}

fn program(act: Act, folder: &std::path::Path, is_walled: bool) -> Program {
    let variables = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    let shell = ["-c".to_owned(), act.command_line()];
    let name = if act == Act::IsRefused { "no-such-program" } else { "sh" };
    let program = Program::new(name, shell, folder, variables);
    if !is_walled {
        return program;
    }
    let rules = Rules::new().network(Network::None).write([folder]);
    program.within(Walls::new(rules, Helper::program(env!("CARGO_BIN_EXE_walls"))).unwrap())
}

fn result(request: &Value, result: &Value) -> Reply {
    Reply::json(200, &json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
}

/// A server with one tool.
fn serve(act: Act, request: &Request) -> Reply {
    let body = &request.body;
    match (request.method.as_str(), body["method"].as_str()) {
        ("POST", Some("initialize")) => {
            let server = json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "box", "version": "1.0.0" },
            });
            result(body, &server)
        }
        ("POST", Some("ping")) => result(body, &json!({})),
        ("POST", Some("tools/list")) => {
            let tool = json!({
                "name": "work",
                "description": "Works.",
                "inputSchema": { "type": "object" },
                "outputSchema": output_schema(),
            });
            result(body, &json!({ "tools": [tool] }))
        }
        ("POST", Some("tools/call")) => act.reply(body),
        ("POST", _) if body.get("id").is_some() => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            Reply::json(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "error": error }))
        }
        ("POST", _) => Reply::new(202, "text/plain", ""),
        _ => Reply::new(405, "text/plain", ""),
    }
}

/// An operator that behaves as a tool, and keeps no record.
#[derive(Clone)]
pub(super) struct Working {
    act: Act,
    clock: VirtualClock,
    schema: Value,
    count: Arc<AtomicUsize>,
}

#[async_trait]
impl Operator for Working {
    fn name(&self) -> &str {
        "work"
    }
    fn output_schema(&self) -> Option<&Value> {
        Some(&self.schema)
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        self.count.fetch_add(1, Ordering::SeqCst);
        let done = self.act.perform(self.clock.clone()).await;
        done.map(Answer::from_output).map_err(OperatorError::from_failure)
    }
}

/// A tool from elsewhere to which a program adds a key or a probe.
struct Adapted {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
}

impl Adapted {
    fn around(tool: Arc<dyn Tool>, once: bool, is_probed: bool) -> Arc<dyn Tool> {
        let spec = tool.spec().clone();
        let spec = if once { spec.once("/n") } else { spec };
        let spec = if is_probed { spec.probe() } else { spec };
        Arc::new(Self { tool, spec })
    }
}

#[async_trait]
impl Tool for Adapted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }
    fn checks_arguments(&self) -> bool {
        self.tool.checks_arguments()
    }
    async fn probe(&self, _: &Arguments, _: &ToolContext) -> Result<Probe, ToolError> {
        Ok(Probe::happened_with(json!({ "paid": 7 })))
    }
    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        self.tool.call(arguments, context).await
    }
}

/// Returns the clock of a place.
pub(super) fn clock_of(place: Place, clock: &VirtualClock) -> Arc<dyn Clock> {
    match place.is_outside() {
        true => Arc::new(SystemClock),
        false => Arc::new(clock.clone()),
    }
}
