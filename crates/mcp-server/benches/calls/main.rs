//! What a call of an MCP tool costs beside bare `rmcp`, alone and made by an agent, and what memory a connection
//! takes: the same server, over stdio and over HTTP.
//!
//! `cargo bench -p backstop-mcp-server`; with `-- --quick` for a glance. The server is ours, with an operator that
//! answers at once; it is this program again.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

mod agent;
mod memory;

use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_mcp::{McpClient, McpServer};
use backstop_mcp_server::{Offer, Server};
use backstop_orchestrator::LocalOrchestrator;
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use backstop_tool::{Arguments, ToolContext, ToolSource};
use layer0::error::OperatorError;
use layer0::operator::{Answer, Context, Task};
use layer0::{Operator, Timestamp};
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How much a call may cost beside a bare one.
const GOAL: Goal = Goal::AtMost(1.15);
/// How many calls are timed together.
const CALLS: u32 = 50;

struct Echo;

#[async_trait]
impl Operator for Echo {
    fn name(&self) -> &str {
        "echo"
    }
    async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
        Ok(Answer::from_output(task.input))
    }
}

fn server() -> Server {
    let orchestrator = LocalOrchestrator::builder().operator(Echo).build();
    Server::new(orchestrator.expect("the operator has a name")).offer(Offer::new("echo", "Echoes."))
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve"] => {
            let stop = CancellationToken::new();
            let served = server().serve_streams(tokio::io::stdin(), tokio::io::stdout(), stop);
            return exit(runtime.block_on(served).is_ok());
        }
        ["serve-http"] => return exit(runtime.block_on(memory::serve())),
        ["hold", client, server] => {
            println!("{}", runtime.block_on(memory::held(client, server)));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let is_quick = arguments.contains(&"--quick");
    let rounds = if is_quick { 10 } else { 60 };
    let mut rows = Vec::new();
    runtime.block_on(async {
        rows.extend(over_stdio(rounds).await);
        rows.extend(over_http(rounds).await);
    });
    rows.extend(memory::rows(if is_quick { 1 } else { 5 }));
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    exit(rows.iter().all(Row::is_met))
}

fn exit(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn over_stdio(rounds: usize) -> [Row; 2] {
    let this = std::env::current_exe().expect("this program has a file");
    let program = this.display().to_string();
    let mut child = tokio::process::Command::new(&this)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let pipes = (child.stdout.take(), child.stdin.take());
    let (Some(read), Some(write)) = pipes else { unreachable!("both are piped") };
    let bare = rmcp::serve_client((), (read, write)).await.expect("the server answers");
    let ours = McpServer::command("bench", [program, "serve".to_owned()]).connect().await;
    let ours = ours.expect("the server answers");
    compared("over stdio", &bare, &ours, rounds).await
}

async fn over_http(rounds: usize) -> [Row; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server().serve_http(listener, None, stop.clone()));
    let url = format!("http://{address}/mcp");
    let bare = rmcp::serve_client((), StreamableHttpClientTransport::from_uri(url.as_str())).await;
    let ours = McpServer::url("bench", url).connect().await;
    let (bare, ours) = (bare.expect("the server answers"), ours.expect("the server answers"));
    let rows = compared("over HTTP", &bare, &ours, rounds).await;
    stop.cancel();
    drop(serving.await);
    rows
}

async fn compared(
    way: &str,
    bare: &RunningService<RoleClient, ()>,
    ours: &Arc<McpClient>,
    rounds: usize,
) -> [Row; 2] {
    let tool = ours.tools().pop().expect("the server has a tool");
    let (mut without, mut alone, mut by_agent): (Vec<_>, Vec<_>, Vec<_>) = Default::default();
    for round in 0..=rounds {
        let began = now();
        for call in 0..CALLS {
            let params = CallToolRequestParams::new("echo")
                .with_arguments(input(call).as_object().cloned().unwrap_or_default());
            drop(bare.call_tool(params).await.expect("the tool answers"));
        }
        let bare_took = began.elapsed();
        let contexts: Vec<ToolContext> = (0..CALLS).map(|call| context(round, call)).collect();
        let began = now();
        for (call, context) in (0..CALLS).zip(&contexts) {
            let arguments = Arguments::from(input(call));
            drop(tool.call(&arguments, context).await.expect("the tool answers"));
        }
        let alone_took = began.elapsed();
        let agent = agent::of(ours);
        let began = now();
        agent::run(&agent).await;
        // In the first round, caches fill.
        if round > 0 {
            by_agent.push(began.elapsed());
            without.push(bare_took);
            alone.push(alone_took);
        }
    }
    let row = |name: &str, took: &[Duration]| {
        Row::new(format!("{name} {way}"), Spread::of(ratios(took, &without)), GOAL)
    };
    [row("a call", &alone), row("a call by an agent", &by_agent)]
}

/// Returns the context of a call. Each has a key of its own: the server answers one it knows without a run.
fn context(round: usize, call: u32) -> ToolContext {
    let run = format!("run_bench_{round}");
    let call = format!("c{call}");
    ToolContext::new(run.into(), "s".into(), call.into(), Timestamp::default())
}

/// Returns the arguments of one of the calls.
fn input(call: u32) -> Value {
    json!({ "input": format!("hello {call}") })
}
