//! What a call of an MCP tool costs beside bare `rmcp`: the same server, the same call, over stdio and over HTTP.
//!
//! `cargo bench -p backstop-mcp-server`; with `-- --quick` for a glance. The server is ours, with an operator that
//! answers at once; over stdio it is this program again.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

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
use serde_json::json;
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
        Ok(Answer::completed(task.input))
    }
}

fn server() -> Server {
    let orchestrator = LocalOrchestrator::builder().operator(Echo).build();
    Server::new(orchestrator.expect("the operator has a name")).offer(Offer::new("echo", "Echoes."))
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    if std::env::args().any(|argument| argument == "serve") {
        let served = server().serve_streams(
            tokio::io::stdin(),
            tokio::io::stdout(),
            CancellationToken::new(),
        );
        return match runtime.block_on(served) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let rounds = if std::env::args().any(|argument| argument == "--quick") { 10 } else { 60 };
    let rows = runtime.block_on(async { [over_stdio(rounds).await, over_http(rounds).await] });
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    match rows.iter().all(Row::is_met) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

async fn over_stdio(rounds: usize) -> Row {
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
    compared("a call over stdio", &bare, &ours, rounds).await
}

async fn over_http(rounds: usize) -> Row {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server().serve_http(listener, None, stop.clone()));
    let url = format!("http://{address}/mcp");
    let bare = rmcp::serve_client((), StreamableHttpClientTransport::from_uri(url.as_str())).await;
    let ours = McpServer::url("bench", url).connect().await;
    let (bare, ours) = (bare.expect("the server answers"), ours.expect("the server answers"));
    let row = compared("a call over HTTP", &bare, &ours, rounds).await;
    stop.cancel();
    drop(serving.await);
    row
}

async fn compared(
    name: &str,
    bare: &RunningService<RoleClient, ()>,
    ours: &Arc<McpClient>,
    rounds: usize,
) -> Row {
    let tool = ours.tools().pop().expect("the server has a tool");
    let arguments = Arguments::from(json!({"input": "hello"}));
    let deadline = Timestamp::default();
    let context = ToolContext::new("run_bench".into(), "s".into(), "c1".into(), deadline);
    let (mut with, mut without): (Vec<Duration>, Vec<Duration>) = Default::default();
    for round in 0..=rounds {
        let began = now();
        for _ in 0..CALLS {
            let params = CallToolRequestParams::new("echo")
                .with_arguments(json!({"input": "hello"}).as_object().cloned().unwrap_or_default());
            drop(bare.call_tool(params).await.expect("the tool answers"));
        }
        let taken = began.elapsed();
        let began = now();
        for _ in 0..CALLS {
            drop(tool.call(&arguments, &context).await.expect("the tool answers"));
        }
        // In the first round, caches fill.
        if round > 0 {
            without.push(taken);
            with.push(began.elapsed());
        }
    }
    Row::new(name, Spread::of(ratios(&with, &without)), GOAL)
}
